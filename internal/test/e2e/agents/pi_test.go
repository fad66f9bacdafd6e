package agents_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// The real pi, to its end on its own.
func TestFullPi(t *testing.T) {
	for _, tt := range []struct {
		name    string
		replies []model.Reply
		change  func(*scene.Scene)
		want    string // status, error class, stop reason
		status  int
		message string // in the thread's failure
	}{
		{"plain answer", []model.Reply{scene.Say("Hello there.")}, nil, "completed  stop", 0, ""},
		{
			"tool turn",
			[]model.Reply{scene.Bash("echo hi > out.txt && cat out.txt"), scene.Say("Done.")},
			nil,
			"completed  stop", 0, "",
		},
		{
			"cut at the output limit",
			[]model.Reply{{Text: "This is cut o", Finish: "length"}},
			nil,
			"completed  length", 0, "",
		},
		{
			"400",
			[]model.Reply{{Status: 400, Message: "no such thing"}},
			nil, "failed provider_error error", 1,
			"no such thing",
		},
		{
			"500, then fine",
			[]model.Reply{{Status: 500, Message: "not now"}, scene.Say("Now.")},
			nil, "completed  stop",
			0, "",
		},
		{"missing key", nil, func(s *scene.Scene) { s.Without(agents.KeyVar) }, "failed pi_exit none", 1, "exit status 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := scene.New(t, scene.Pi078, tt.replies...)
			if tt.change != nil {
				tt.change(s)
			}
			if got := s.Status(s.Start()); got != tt.status {
				t.Errorf("exit status %d, want %d", got, tt.status)
			}
			e := s.End()
			if got := e.Status + " " + e.Cause.ErrorClass + " " + e.Totals.StopReason; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if !strings.Contains(e.Cause.Message, tt.message) {
				t.Errorf("the failure says %q", e.Cause.Message)
			}
			if n := len(s.Model.Requests()); n != len(tt.replies) {
				t.Errorf("the model was asked %d times", n)
			}
			s.Complete(s.Entries())
		})
	}
}

// The file that a tool wrote has the content that pi was asked to write.
func TestFullPiWritesFile(t *testing.T) {
	t.Parallel()
	s := scene.New(
		t,
		scene.Pi078,
		model.Reply{
			Tools: []model.Tool{
				{Name: "write", Arguments: map[string]any{"path": "haiku.txt", "content": "five\nseven\nfive\n"}},
			},
		},
		scene.Say("Done."),
	)
	if got := s.Status(s.Start()); got != 0 {
		t.Fatalf("exit status %d", got)
	}
	b, err := os.ReadFile(filepath.Join(s.Dir, "work", "haiku.txt"))
	if err != nil || string(b) != "five\nseven\nfive\n" {
		t.Errorf("the file has %q, %v", b, err)
	}
	var started thread.Started
	for _, e := range s.Entries() {
		if e.ID == "r1.started" {
			started = scene.Payload[thread.Started](t, e)
		}
	}
	out, err := s.Box("version")
	if err != nil {
		t.Fatal(err)
	}
	version := strings.Fields(out)[1]
	if started.AgentVersion != scene.Pi078 || !strings.HasPrefix(version, started.RunnerVersion) ||
		started.RunnerVersion == "" ||
		started.Cwd != filepath.Join(s.Dir, "work") ||
		started.Resume != "none" {
		t.Errorf("the run began with %+v", started)
	}
}

// pi gets the prompt unchanged, with any beginning and of any length.
func TestFullPiPrompt(t *testing.T) {
	for _, tt := range []struct{ name, prompt string }{
		{"a dash", "-p --model nonsense"},
		{"two dashes", "-- and more"},
		{"an at", "@file is what I mean"},
		{"white space", "  \n\tbefore and after \n\n"},
		{"a dash and space", "- one\n- two\n\n"},
		{"quotes", "it's \"so\" $HOME `ls` \\n \u2028 é"},
		{"a long one", "long " + strings.Repeat("0123456789abcdef", 20_000) + " \n"},
	} {
		prompt := tt.prompt
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := scene.New(t, scene.Pi078, scene.Say("ok"))
			s.Prompt = prompt
			if len(prompt) > 100_000 { // no command line takes it
				file := filepath.Join(s.Dir, "prompt")
				if err := os.WriteFile(file, []byte(prompt), 0o600); err != nil {
					t.Fatal(err)
				}
				s.Args, s.Prompt = append(s.Args, "--prompt-file", file), ""
			}
			if got := s.Status(s.Start()); got != 0 {
				t.Fatalf("exit status %d", got)
			}
			entries := s.Entries()
			s.Complete(entries)
			for _, e := range entries {
				if e.ID == "r1.prompt" {
					if got := scene.Payload[thread.Chat](t, e).Text; got != prompt {
						t.Errorf("the thread has %.80q", got)
					}
				}
				if p := scene.Payload[promptLine](t, e); p.Kind == "prompt" {
					if got := p.Line.Message.Content[0].Text; got != prompt {
						t.Errorf("pi got %.80q, want %.80q", got, prompt)
					}
					return
				}
			}
			t.Error("the session has no prompt")
		})
	}
}

// promptLine is the session's line of the prompt.
type promptLine struct {
	Kind string
	Line struct {
		Message struct{ Content []struct{ Text string } }
	}
}

// TERM to the runner while the model is speaking: the agent ends in order, and so does the run.
func TestFullPiTerminated(t *testing.T) {
	t.Parallel()
	s := scene.New(t, scene.Pi078,
		model.Reply{Text: strings.Repeat("word ", 500), Pace: model.Duration(50 * time.Millisecond)})
	r := s.Start()
	scene.Until(t, "the model is asked", func() bool { return len(s.Model.Requests()) == 1 })
	if err := r.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	status := s.Status(r)
	killed := status == 137 && s.Killed()
	if status != 143 && !killed {
		t.Errorf("exit status %d, want 143", status)
	}
	if e := s.End(); e.Status != "cancelled" || e.Totals.Reason != "cancelled: SIGTERM" ||
		!killed && *e.Totals.ExitCode != 143 {
		t.Errorf("got %+v", e)
	}
	entries := s.Entries()
	s.Complete(entries)
	// header, model, thinking level, prompt: pi 0.78.0 drops what it had of the reply
	if n := len(linesOf(entries)); n != 4 {
		t.Errorf("%d lines", n)
	}
}

// KILL to pi while a tool is at work.
func TestFullPiKilled(t *testing.T) {
	t.Parallel()
	s := scene.New(t, scene.Pi078, scene.Bash("echo $$ > tool.pid; exec sleep 300"))
	r := s.Start()
	pidFile := filepath.Join(s.Dir, "work", "tool.pid")
	scene.Until(
		t,
		"the tool is at work",
		func() bool { b, err := os.ReadFile(pidFile); return err == nil && strings.HasSuffix(string(b), "\n") },
	)
	if err := syscall.Kill(scene.AgentPID(t, s), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := s.Status(r); got != 137 {
		t.Errorf("exit status %d, want 137", got)
	}
	if e := s.End(); e.Status != "failed" || e.Cause.ErrorClass != "killed" || e.Totals.StopReason != "toolUse" ||
		*e.Cause.ExitSignal != "SIGKILL" {
		t.Errorf("got %+v", e)
	}
	s.Complete(s.Entries())
	b, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Logf("the tool is gone already: %v", err)
	}
}

// A secret that a tool prints is on the thread nowhere, and nor is the token.
func TestFullPiSecret(t *testing.T) {
	t.Parallel()
	s := scene.New(t, scene.Pi078, scene.Bash(`env; echo "so: $DEPLOY_TOKEN"`), scene.Say("The token is tok-\"quoted\"-0123456789."))
	s.Env = append(s.Env, `DEPLOY_TOKEN=tok-"quoted"-0123456789`)
	if got := s.Status(s.Start()); got != 0 {
		t.Fatalf("exit status %d", got)
	}
	entries := s.Entries()
	all := ""
	for _, e := range linesOf(entries) {
		all += string(e.Payload)
	}
	for _, secret := range []string{`tok-\"quoted\"`, "scripted-key-0001", "eyJ"} {
		if strings.Contains(all, secret) {
			t.Errorf("%s is on the thread", secret)
		}
	}
	for _, mark := range []string{
		"so: [redacted:DEPLOY_TOKEN]", "The token is [redacted:DEPLOY_TOKEN].",
		"[redacted:SCRIPTED_API_KEY]",
	} {
		if !strings.Contains(all, mark) {
			t.Errorf("%s is not on the thread", mark)
		}
	}
	if e := s.End(); e.Totals.Lines != int64(len(linesOf(entries))) {
		t.Errorf("the end speaks of %d lines of %d", e.Totals.Lines, len(linesOf(entries)))
	}
}

// An older thread server, with single posts only.
func TestFullPiOldServer(t *testing.T) {
	t.Parallel()
	s := scene.New(t, scene.Pi078, scene.Bash("echo hi"), scene.Say("Done."))
	old := fakethread.New(t, nil).Old()
	s.Without("ARBE_STREAM_URL")
	s.Without("ARBE_STREAM_TOKEN")
	s.Without("ARBE_THREAD_ID")
	s.Env = append(s.Env, "ARBE_STREAM_URL="+old.URL, "ARBE_STREAM_TOKEN="+old.Token, "ARBE_THREAD_ID=t1")
	if got := s.Status(s.Start()); got != 0 {
		t.Errorf("exit status %d", got)
	}
	s.Complete(old.Entries())
}

func linesOf(entries []thread.Entry) []thread.Entry {
	var lines []thread.Entry
	for _, e := range entries {
		if strings.HasPrefix(e.ID, "pi:") {
			lines = append(lines, e)
		}
	}
	return lines
}
