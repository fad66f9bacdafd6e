package harness_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

// The last record of a turn decides, and only real prompts begin one.
func TestTally(t *testing.T) {
	line := func(mark session.Mark, stop string) session.Entry {
		kind := session.Assistant
		switch mark {
		case session.Prompt:
			kind = session.User
		case session.Answer:
			kind = session.ToolResult
		case session.NoMark:
			kind = session.Other
		}
		return session.Entry{Kind: kind, Known: true, Mark: mark, StopReason: stop}
	}
	var (
		user  = line(session.Prompt, "")
		tool  = line(session.Output, "toolUse")
		res   = line(session.Answer, "")
		stop  = line(session.End, "stop")
		fail  = line(session.Failure, "error")
		abort = line(session.Abort, "aborted")
		other = line(session.NoMark, "")
	)
	for _, tt := range []struct {
		name    string
		lines   []session.Entry
		state   outcome.State
		stop    string
		resting bool
	}{
		{"nothing", nil, outcome.None, "", false},
		{"prompt", []session.Entry{user}, outcome.None, "none", false},
		{"answer", []session.Entry{user, stop}, outcome.Ended, "stop", true},
		{"answer, and housekeeping", []session.Entry{user, stop, other}, outcome.Ended, "stop", true},
		{"in a tool", []session.Entry{user, tool}, outcome.Unfinished, "toolUse", false},
		{"after a tool", []session.Entry{user, tool, res}, outcome.Unfinished, "toolUse", false},
		{"tool turn", []session.Entry{user, tool, res, stop}, outcome.Ended, "stop", true},
		{"failed", []session.Entry{user, fail}, outcome.Errored, "error", false},
		{"failed, then fine", []session.Entry{user, fail, stop}, outcome.Ended, "stop", true},
		{"fine, then failed", []session.Entry{user, stop, user, fail}, outcome.Errored, "error", false},
		{"aborted", []session.Entry{user, abort}, outcome.Aborted, "aborted", false},
		{"a second prompt without an answer", []session.Entry{user, stop, user}, outcome.Unfinished, "none", false},
		{"failed, then a prompt without an answer", []session.Entry{user, fail, user}, outcome.Unfinished, "none", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var tally harness.Tally
			for _, e := range tt.lines {
				tally.Add(e)
			}
			turn := tally.Turn()
			if turn.State != tt.state || turn.StopReason != tt.stop || tally.Resting() != tt.resting ||
				turn.Lines != len(tt.lines) {
				t.Errorf("got %+v, resting %v", turn, tally.Resting())
			}
		})
	}
}

// Every recorded case has its verdict.
func TestRecordedVerdicts(t *testing.T) {
	cases, err := filepath.Glob("../testdata/sessions/*/*/case.json")
	if err != nil || len(cases) < len(harness.Names()) {
		t.Fatalf("no recorded cases: %v, %v", cases, err)
	}
	for _, path := range cases {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var c struct {
				Harness  string
				ExitCode *int
				Signal   *string
				Expect   struct {
					Outcome    string
					StopReason json.RawMessage // one, or a list of those that are right
				}
			}
			if err := json.Unmarshal(b, &c); err != nil {
				t.Fatal(err)
			}
			var exit outcome.Exit
			if c.ExitCode != nil {
				exit = outcome.ExitCode(*c.ExitCode)
			}
			if c.Signal != nil {
				n, err := outcome.ParseSignal(*c.Signal)
				if err != nil {
					t.Fatal(err)
				}
				exit = outcome.Signalled(n)
			}
			spec, err := harness.Lookup(c.Harness)
			if err != nil {
				t.Fatal(err)
			}
			read := func(name string) string {
				content, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				return string(content)
			}
			var tally harness.Tally
			for line := range strings.Lines(read("session.jsonl")) {
				e := spec.Dialect.Decode([]byte(line))
				if !e.Known {
					t.Errorf("not known: %.200s", line)
				}
				if e.Mark == session.Prompt {
					tally = harness.Tally{}
				}
				tally.Add(e)
			}
			if tally.OnStdout = spec.EndsOnStdout; spec.Report != nil {
				for line := range strings.Lines(read("stdout")) {
					tally.AddReport(spec.Report([]byte(line)))
				}
			}
			v := outcome.Decide(outcome.Facts{Turn: tally.Turn(), Exit: exit})
			if string(v.Outcome) != c.Expect.Outcome ||
				!strings.Contains(string(c.Expect.StopReason), strconv.Quote(v.StopReason)) {
				t.Errorf("got %+v, want %s %s", v, c.Expect.Outcome, c.Expect.StopReason)
			}
		})
	}
}
