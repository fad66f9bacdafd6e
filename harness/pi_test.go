package harness_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

func pi(t *testing.T) harness.Spec {
	t.Helper()
	s, err := harness.Lookup("pi")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPiCommand(t *testing.T) {
	long := strings.Repeat("x", 1<<17)
	for _, tt := range []struct {
		name  string
		task  harness.Task
		args  []string
		stdin string
	}{
		{"plain", harness.Task{Session: "s", Prompt: "do it"}, []string{"--session", "s", "-p", "do it"}, ""},
		{"model and more", harness.Task{Session: "s", Model: "p/m", Args: []string{"--thinking", "high"}, Prompt: "do it"}, []string{"--session", "s", "--model", "p/m", "--thinking", "high", "-p", "do it"}, ""},
		{"white space", harness.Task{Session: "s", Prompt: " a \n"}, []string{"--session", "s", "-p", " a \n"}, ""},
		{"a dash", harness.Task{Session: "s", Prompt: "-a"}, []string{"--session", "s", "-p"}, "-a"},
		{"a dash and white space", harness.Task{Session: "s", Prompt: "-a \u00a0\n"}, []string{"--session", "s", "-p", " \u00a0\n"}, "-a"},
		{"an at", harness.Task{Session: "s", Prompt: "@a"}, []string{"--session", "s", "-p"}, "@a"},
		{"a NUL", harness.Task{Session: "s", Prompt: "a\x00b"}, []string{"--session", "s", "-p"}, "a\x00b"},
		{"long", harness.Task{Session: "s", Prompt: long + "\n"}, []string{"--session", "s", "-p", "\n"}, long},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := pi(t).Command(tt.task)
			if diff := cmp.Diff(tt.args, got.Args); diff != "" || got.Stdin != tt.stdin {
				t.Errorf("stdin %.20q, -want +got:\n%.500s", got.Stdin, diff)
			}
		})
	}
}

func TestPiVersion(t *testing.T) {
	dir := t.TempDir()
	pkg := filepath.Join(dir, "lib", "node_modules", "@earendil-works", "pi-coding-agent")
	for path, content := range map[string]string{
		filepath.Join(pkg, "package.json"):   `{"name":"@earendil-works/pi-coding-agent","version":"0.78.0"}`,
		filepath.Join(pkg, "dist", "cli.js"): "",
		filepath.Join(dir, "package.json"):   `{"name":"something-else","version":"9"}`,
		filepath.Join(dir, "other"):          "",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(pkg, "dist", "cli.js"), filepath.Join(dir, "pi")); err != nil {
		t.Fatal(err)
	}
	for binary, want := range map[string]string{"pi": "0.78.0", "other": "", "missing": ""} {
		if got := pi(t).Version(filepath.Join(dir, binary)); got != want {
			t.Errorf("%s is version %q, want %q", binary, got, want)
		}
	}
}

func TestPiSessionFile(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 16, 27, 768e6, time.UTC)
	if got, want := pi(t).SessionFile("/d", "id-1", at), "/d/2026-11-20T12-16-27-768Z_id-1.jsonl"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	e := pi(t).Dialect.Decode(pi(t).Create("id-1", `/a "b"`, at))
	if e.Kind != session.Header || e.SessionID != "id-1" || e.Cwd != `/a "b"` || !e.Time.Equal(at) {
		t.Errorf("got %+v", e)
	}
}

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
			if turn.State != tt.state || turn.StopReason != tt.stop || tally.Resting() != tt.resting || turn.Lines != len(tt.lines) {
				t.Errorf("got %+v, resting %v", turn, tally.Resting())
			}
		})
	}
}

// Every recorded case comes to what it came to.
func TestRecordedVerdicts(t *testing.T) {
	cases, err := filepath.Glob("../testdata/sessions/pi/*/case.json")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no recorded cases: %v", err)
	}
	for _, path := range cases {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var c struct {
				ExitCode *int
				Signal   *string
				Expect   struct{ Outcome, StopReason string }
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
			content, err := os.ReadFile(filepath.Join(dir, "session.jsonl"))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			var tally harness.Tally
			for line := range strings.Lines(string(content)) {
				e := session.Pi.Decode([]byte(line))
				if e.Mark == session.Prompt {
					tally = harness.Tally{}
				}
				tally.Add(e)
			}
			v := outcome.Decide(outcome.Facts{Turn: tally.Turn(), Exit: exit})
			if string(v.Outcome) != c.Expect.Outcome || v.StopReason != c.Expect.StopReason {
				t.Errorf("got %+v, want %+v", v, c.Expect)
			}
		})
	}
}
