package runner_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
)

func TestBreach(t *testing.T) {
	const s = time.Second
	all := runner.Limits{Linger: 30 * s, Stall: 60 * s, Unreachable: 600 * s, Guard: 3600 * s}
	for _, tt := range []struct {
		name   string
		limits runner.Limits
		signs  runner.Signs
		want   outcome.Action
	}{
		{"just begun", all, runner.Signs{}, outcome.ActionNone},
		{"rests, a line 29 s ago", all, runner.Signs{Now: 100 * s, Line: 71 * s, Resting: true}, outcome.ActionNone},
		{"rests, a line 30 s ago", all, runner.Signs{Now: 100 * s, Line: 70 * s, Resting: true}, outcome.ActionLinger},
		{"rests, and prints", all, runner.Signs{Now: 100 * s, Line: 10 * s, Output: 98 * s, Resting: true}, outcome.ActionNone},
		{"rests, and has printed", all, runner.Signs{Now: 100 * s, Line: 10 * s, Output: 70 * s, Resting: true}, outcome.ActionLinger},
		{"rests, and computes", all, runner.Signs{Now: 100 * s, Work: 99 * s, Resting: true}, outcome.ActionLinger},
		{"in mid-turn, silent for 30 s", all, runner.Signs{Now: 100 * s, Line: 70 * s}, outcome.ActionNone},
		{"a person's", runner.Limits{}, runner.Signs{Now: 1e6 * s, Resting: true}, outcome.ActionNone},
		{"does nothing for 59 s", all, runner.Signs{Now: 100 * s, Work: 41 * s}, outcome.ActionNone},
		{"does nothing for 60 s", all, runner.Signs{Now: 100 * s, Work: 40 * s}, outcome.ActionStall},
		{"prints 59 s ago", all, runner.Signs{Now: 100 * s, Output: 41 * s}, outcome.ActionNone},
		{"provider away for 10 m", all, runner.Signs{Now: 700 * s, Work: 699 * s, Away: 600 * s}, outcome.ActionUnreachable},
		{"runs for an hour", all, runner.Signs{Now: 3600 * s, Line: 3599 * s}, outcome.ActionTimeout},
		{"runs for an hour under two workers", all, runner.Signs{Now: 100 * s, Began: -3500 * s, Line: 99 * s}, outcome.ActionTimeout},
	} {
		if got := tt.limits.Breach(tt.signs); got != string(tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Time in which the worker could not look is no time in which the agent did nothing.
func TestObserved(t *testing.T) {
	const look = runner.LookEvery
	for _, tt := range []struct {
		name       string
		looks      []time.Duration
		seen, lost time.Duration
	}{
		{"in time", []time.Duration{0, look, 2 * look, 3 * look}, 3 * look, 0},
		{"late by half", []time.Duration{0, 3 * look / 2, 3 * look}, 3 * look, 0},
		{"frozen for 25 looks", []time.Duration{0, look, 26 * look, 27 * look}, 4 * look, 23 * look},
		{"asleep for three days", []time.Duration{0, look, look + 72*time.Hour}, 3 * look, 72*time.Hour - 2*look},
	} {
		if seen, lost := runner.Observed(tt.looks...); seen != tt.seen || lost != tt.lost {
			t.Errorf("%s: seen %v, lost %v; want %v, %v", tt.name, seen, lost, tt.seen, tt.lost)
		}
	}
}

// An agent that goes on printing after its last turn is at work still.
func TestNoLingerWhilePrinting(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "say done",
		"sleep 2s", "print a", "sleep 2s", "print b", "sleep 2s", "print c", "sleep 2s", "print d", "exit 0")
	cfg.Patience = 5 * time.Second
	res, err := run(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if v := res.Verdict; v.Outcome != outcome.Completed || v.Exit != outcome.ExitCode(0) {
		t.Errorf("got %+v", v)
	}
}

// A clock that is set back during the run hides no subagent, and one that is set ahead none that was there before.
func TestBeganByAnotherClock(t *testing.T) {
	spec, err := harness.Lookup("claude-code")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "s1", "subagents", "agent-a1.jsonl")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	started := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name    string
		written time.Time     // the file's time
		elapsed time.Duration // since the run began
		now     time.Time
		found   int
	}{
		{"a right clock", started.Add(time.Minute), 2 * time.Minute, started.Add(2 * time.Minute), 1},
		{"written before the run", started.Add(-time.Minute), 2 * time.Minute, started.Add(2 * time.Minute), 0},
		{"set back by a day", started.Add(time.Minute - 24*time.Hour), 2 * time.Minute, started.Add(2*time.Minute - 24*time.Hour), 1},
		{"set ahead by a day, after it was written", started.Add(time.Minute), 2 * time.Minute, started.Add(24 * time.Hour), 1},
	} {
		if err := os.Chtimes(file, tt.written, tt.written); err != nil {
			t.Fatal(err)
		}
		since := runner.Began(started, tt.elapsed, tt.now)
		if got := spec.Subagents(filepath.Join(dir, "s1.jsonl"), "s1", since, nil); len(got) != tt.found {
			t.Errorf("%s: found %v, want %d", tt.name, got, tt.found)
		}
	}
}
