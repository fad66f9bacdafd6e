package runner_test

import (
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
)

func TestWhy(t *testing.T) {
	const s = time.Second
	all := runner.Limits{Linger: 30 * s, Stall: 60 * s, Unreachable: 600 * s, Guard: 3600 * s}
	none := outcome.ActionNone
	for _, tt := range []struct {
		name   string
		limits runner.Limits
		now    time.Duration
		signs  runner.Signs
		want   outcome.Action
	}{
		{"just begun", all, 0, runner.Signs{}, none},
		{"rests, a line 29 s ago", all, 100 * s, runner.Signs{Line: 71 * s, Resting: true}, none},
		{"rests, a line 30 s ago", all, 100 * s, runner.Signs{Line: 70 * s, Resting: true}, outcome.ActionLinger},
		{"rests, and prints", all, 100 * s, runner.Signs{Line: 10 * s, Output: 98 * s, Resting: true}, none},
		{
			"rests, and has printed", all, 100 * s,
			runner.Signs{Line: 10 * s, Output: 70 * s, Resting: true},
			outcome.ActionLinger,
		},
		{"rests, and computes", all, 100 * s, runner.Signs{Work: 99 * s, Resting: true}, outcome.ActionLinger},
		{"in mid-turn, silent for 30 s", all, 100 * s, runner.Signs{Line: 70 * s}, none},
		{"a person's", runner.Limits{}, 1e6 * s, runner.Signs{Resting: true}, none},
		{"does nothing for 59 s", all, 100 * s, runner.Signs{Work: 41 * s}, none},
		{"does nothing for 60 s", all, 100 * s, runner.Signs{Work: 40 * s}, outcome.ActionStall},
		{"printed 59 s ago", all, 100 * s, runner.Signs{Output: 41 * s}, none},
		{
			"provider away for 10 m", all, 700 * s,
			runner.Signs{Work: 699 * s, Offline: 600 * s},
			outcome.ActionUnreachable,
		},
		{"runs for an hour", all, 3600 * s, runner.Signs{Line: 3599 * s}, outcome.ActionTimeout},
		{
			"runs for an hour under two workers", all, 100 * s,
			runner.Signs{Began: -3500 * s, Line: 99 * s},
			outcome.ActionTimeout,
		},
	} {
		got, reached := runner.Why(tt.signs, tt.limits, tt.now)
		if got != tt.want || reached != (tt.want != none) {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, reached, tt.want)
		}
	}
}

// What two looks show becomes signs.
func TestSignsAfter(t *testing.T) {
	const s = time.Second
	old := runner.Signs{Began: -s, Line: 1 * s, Output: 2 * s, Work: 3 * s}
	is := func(change func(*runner.Signs)) runner.Signs {
		n := old
		change(&n)
		return n
	}
	for _, tt := range []struct {
		name      string
		signs     runner.Signs
		prev, cur runner.Sight
		want      runner.Signs
	}{
		{"nothing new", old, runner.Sight{Line: s}, runner.Sight{Line: s}, old},
		{"a line", old, runner.Sight{Line: s}, runner.Sight{Line: 2 * s}, is(func(n *runner.Signs) { n.Line = 9 * s })},
		{"output", old, runner.Sight{}, runner.Sight{Printed: true}, is(func(n *runner.Signs) { n.Output = 9 * s })},
		{
			"output at the look before", old,
			runner.Sight{Printed: true},
			runner.Sight{},
			old,
		},
		{
			"a subagent's line", old,
			runner.Sight{Subagents: 4},
			runner.Sight{Subagents: 5},
			is(func(n *runner.Signs) { n.Work = 9 * s }),
		},
		{"computes", old, runner.Sight{CPU: 5 * s}, runner.Sight{CPU: 6 * s}, is(func(n *runner.Signs) { n.Work = 9 * s })},
		{"idles", old, runner.Sight{CPU: 5 * s}, runner.Sight{CPU: 5*s + s/100}, old},
		{"a process of it has ended", old, runner.Sight{CPU: 5 * s}, runner.Sight{CPU: 2 * s}, old},
		{"its first measurement", old, runner.Sight{CPU: -1}, runner.Sight{CPU: 6 * s}, old},
		{"begins to wait for its provider", old, runner.Sight{}, runner.Sight{Offline: 7 * s}, old},
		{
			"waits for its provider", old,
			runner.Sight{Offline: 7 * s},
			runner.Sight{Offline: 7 * s},
			is(func(n *runner.Signs) { n.Offline = s }),
		},
		{
			"waits for it once more", is(func(n *runner.Signs) { n.Offline = 5 * s }),
			runner.Sight{Offline: 7 * s},
			runner.Sight{Offline: 8 * s},
			old,
		},
		{
			"waits no more", is(func(n *runner.Signs) { n.Offline = 5 * s }),
			runner.Sight{Offline: 7 * s},
			runner.Sight{},
			old,
		},
		{"rests", old, runner.Sight{}, runner.Sight{Resting: true}, is(func(n *runner.Signs) { n.Resting = true })},
	} {
		if got := tt.signs.After(tt.prev, tt.cur, 9*s, s); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
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

// An agent that continues printing after its last turn is at work still.
func TestNoLingerWhilePrinting(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	plan := []string{"prompt", "say done"}
	for range 30 { // in all longer than the timeout, and each a small part of it
		plan = append(plan, "sleep 400ms", "print on")
	}
	cfg := setup(t, server, append(plan, "exit 0")...)
	cfg.Timeout = 10 * time.Second
	res, err := run(t, runner.Fast(cfg))
	if err != nil {
		t.Fatal(err)
	}
	if v := res.Verdict; v.Outcome != outcome.Completed || v.Exit != outcome.ExitCode(0) {
		t.Errorf("got %+v", v)
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "fail 500", "sleep 60s")
	cfg.Guard = 300 * time.Millisecond
	res, err := run(t, runner.Fast(cfg))
	if err != nil {
		t.Fatal(err)
	}
	if v := res.Verdict; v.Outcome != outcome.Failed || v.ErrorClass != outcome.ClassTimeout ||
		v.Message != "the runaway guard ended the agent: it ran for 300ms" {
		t.Errorf("got %+v", v)
	}
}

// An agent that has ended well and will not go is ended, and the run is completed.
func TestLinger(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "ignore TERM", "say done", "sleep 60s")
	cfg.Timeout = 500 * time.Millisecond
	res, err := run(t, runner.Fast(cfg))
	if err != nil {
		t.Fatal(err)
	}
	if v := res.Verdict; v.Outcome != outcome.Completed || v.Exit != outcome.Signalled(9) {
		t.Errorf("got %+v", v)
	}
}

// One whose tool is still at work is left alone, also where its reply was cut.
func TestNoLinger(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	tool := `{"type":"message","id":"x","parentId":"m1","timestamp":"2026-01-01T00:00:00.000Z","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"bash","arguments":{}}],"stopReason":"length"}}`
	cfg := setup(t, server, "prompt", "line "+tool, "sleep 500ms", "exit 0")
	cfg.Timeout = 100 * time.Millisecond
	res, err := run(t, runner.Fast(cfg))
	if err != nil {
		t.Fatal(err)
	}
	if v := res.Verdict; v.Outcome != outcome.Completed || v.Exit != outcome.ExitCode(0) {
		t.Errorf("got %+v", v)
	}
}
