package harness_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

func TestClaudeCommand(t *testing.T) {
	flags := "-p --output-format stream-json --verbose --dangerously-skip-permissions "
	of := harness.Session{ID: "id-1"}
	long := strings.Repeat("x", 1<<17)
	for _, tt := range []struct {
		name  string
		task  harness.Task
		args  string // split at spaces
		stdin string
	}{
		{"plain", harness.Task{Session: of, Prompt: "go"}, flags + "--session-id id-1 -- go", ""},
		{"model and more", harness.Task{Session: of, Prompt: "go", Model: "m", Args: []string{"--max-turns", "3"}}, flags + "--session-id id-1 --model m --max-turns 3 -- go", ""},
		{"resume", harness.Task{Session: of, Resume: true, Prompt: "go"}, flags + "--resume id-1 -- go", ""},
		{"a dash", harness.Task{Session: of, Prompt: "-"}, flags + "--session-id id-1 -- -", ""},
		{"long", harness.Task{Session: of, Prompt: long}, flags + "--session-id id-1", long},
		{"a person", harness.Task{Session: of, Person: true, Prompt: "go"}, "--dangerously-skip-permissions --session-id id-1 -- go", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := spec(t, "claude-code").Command(boxWith(nil), tt.task)
			if diff := cmp.Diff(strings.Split(strings.TrimSpace(tt.args), " "), got.Args); diff != "" ||
				got.Stdin != tt.stdin {
				t.Errorf("stdin %.20q, -want +got:\n%.800s", got.Stdin, diff)
			}
		})
	}
}

func TestClaudeReport(t *testing.T) {
	for line, want := range map[string]harness.Report{
		`{"type":"system","subtype":"init","session_id":"s1"}`:                                                               {SessionID: "s1", Mark: session.Begin},
		`{"is_error":false,"terminal_reason":"completed","subtype":"success","type":"result","result":"x"}`:                  {Mark: session.End, StopReason: "stop"},
		`{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","result":"API Error: 500"}`:      {Mark: session.Failure, StopReason: "error", Message: "API Error: 500"},
		`{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","errors":[]}`: {Mark: session.Abort, StopReason: "aborted"},
		`{"type":"result","subtype":"error_max_turns","is_error":true,"terminal_reason":"max_turns","errors":["too many"]}`:  {Mark: session.Failure, StopReason: "error", Message: "too many", Class: outcome.ClassExit},
		`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["No conversation found"]}`:            {Mark: session.Failure, StopReason: "error", Message: "No conversation found", Class: outcome.ClassExit},
		`{"type":"assistant","message":{"stop_reason":null,"content":[{"type":"text","text":"{\"type\":\"result\"}"}]}}`:     {},
		`{"type":"system","subtype":"api_retry","attempt":1}`:                                                                {},
		`not JSON`: {},
	} {
		if got := spec(t, "claude-code").Report([]byte(line)); got != want {
			t.Errorf("%s: got %+v, want %+v", line, got, want)
		}
	}
}

// The turn counts the session's last line and the result on stdout together.
func TestClaudeEnds(t *testing.T) {
	s := spec(t, "claude-code")
	init, fine, bad := `{"type":"system","subtype":"init"}`, `{"type":"result","is_error":false}`, `{"type":"result","is_error":true,"result":"no"}`
	prompt := `{"type":"user","message":{"content":"x"}}`
	answer := `{"type":"assistant","message":{"content":[],"stop_reason":"end_turn"}}`
	broken := `{"type":"user","message":{"content":"[Request interrupted by user]"}}`
	for _, tt := range []struct {
		name    string
		lines   []string
		stdout  []string
		want    outcome.State
		resting bool
	}{
		{"both", []string{prompt, answer}, []string{init, fine}, outcome.Ended, true},
		{"no stdout", []string{prompt, answer}, nil, outcome.Ended, true},
		{"no result: it was at work in the background", []string{prompt, answer}, []string{init}, outcome.Unfinished, false},
		{"a second turn under way", []string{prompt, answer, answer}, []string{init, fine, init}, outcome.Unfinished, false},
		{"the last result counts", []string{prompt, answer, answer}, []string{init, bad, init, fine}, outcome.Ended, true},
		{"an empty answer", []string{prompt}, []string{init, fine}, outcome.Ended, true},
		{"a result and no session", nil, []string{init, fine}, outcome.None, false},
		{"a failure that the session doesn't have", []string{prompt, answer}, []string{init, bad}, outcome.Errored, false},
		{"an interruption that stdout doesn't have", []string{prompt, broken}, []string{init}, outcome.Aborted, false},
		{"an interruption, and a result", []string{prompt, broken}, []string{init, fine}, outcome.Aborted, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tally := harness.Tally{OnStdout: s.EndsOnStdout}
			for _, line := range tt.lines {
				tally.Add(s.Dialect.Decode([]byte(line)))
			}
			for _, line := range tt.stdout {
				tally.AddReport(s.Report([]byte(line)))
			}
			if got := tally.Turn(); got.State != tt.want || tally.Resting() != tt.resting {
				t.Errorf("got %+v, resting %v", got, tally.Resting())
			}
		})
	}
}

func TestClaudeSessions(t *testing.T) {
	home := t.TempDir()
	b := boxWith(map[string]string{"HOME": home})
	s := spec(t, "claude-code")
	write(t, home, map[string]string{
		".claude/projects/-w/s1.jsonl": "{}\n", ".claude/projects/-w/s2.jsonl": "{}\n",
		".claude/projects/-w/s1/subagents/agent-a1.jsonl":     "{}\n",
		".claude/projects/-w/s1/subagents/agent-a1.meta.json": "{}",
		".claude/projects/-w/s2/subagents/agent-a2.jsonl":     "{}\n",
	})
	path := s.FindSession(b, "s1")
	if want := filepath.Join(home, ".claude/projects/-w/s1.jsonl"); path != want {
		t.Errorf("found %s, want %s", path, want)
	}
	got := s.Subagents(b, harness.Session{Path: path, ID: "s1"}, nil)
	if len(got) != 1 || got[0].ID != "agent-a1" {
		t.Errorf("found %+v", got)
	}
	if got := s.Subagents(b, harness.Session{}, nil); got != nil {
		t.Errorf("found %+v of a session that has not begun", got)
	}
	if got, err := filepath.Rel(home,
		s.SessionFile(boxWith(map[string]string{"CLAUDE_CONFIG_DIR": home}), "s3", time.Now())); err != nil ||
		!strings.HasPrefix(got, "projects/") ||
		!strings.HasSuffix(got, "/s3.jsonl") {
		t.Errorf("a rebuilt session is kept in %s, %v", got, err)
	}
}
