package runner_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/internal/test/surroundings"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/thread"
)

func TestMain(m *testing.M) {
	harness.Main()
	if os.Getenv(fakeagent.PlanVar) != "" {
		os.Exit(fakeagent.Main())
	}
	if job := os.Getenv(workerVar); job != "" {
		os.Exit(worker(job))
	}
	surroundings.Enter()
	os.Exit(m.Run())
}

type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// setup is a run of a fake agent with a plan, against a fake thread.
func setup(t *testing.T, server *fakethread.Server, plan ...string) runner.Config {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "plan")
	if err := os.WriteFile(file, []byte(strings.Join(plan, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := harness.Lookup("pi")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(testLog{t}, nil))
	client := server.Client()
	client.Log = log
	return runner.Config{
		Spec: spec, Version: "test", ThreadID: "t1", RunID: "r1", Binary: self, Prompt: "do it", Cwd: dir,
		State: filepath.Join(dir, "state"),
		Environ: []string{
			"PATH=" + os.Getenv("PATH"),
			fakeagent.PlanVar + "=" + file,
			"HOME=" + dir,
			"GORACE=atexit_sleep_ms=0",
		},
		Client: client, Log: log, Stdout: io.Discard, Stderr: io.Discard,
		Heartbeat: time.Hour, // on a busy machine a run may take longer than the default
	}
}

func run(t *testing.T, cfg runner.Config) (runner.Result, error) {
	t.Helper()
	return runner.RunAlone(t.Context(), t.Context(), cfg)
}

// types are the thread's entries in short: the type, and what makes it what it is. Heartbeats are left out: their
// number depends on the machine.
func types(entries []thread.Entry) []string {
	var all []string
	for _, e := range entries {
		var p struct{ Type, Kind, Status, ErrorClass, Reason, StopReason string }
		_ = json.Unmarshal(e.Payload, &p) // what doesn't fit is not shown
		word := p.Type
		if word == thread.TypeHeartbeat {
			continue
		}
		for _, w := range []string{p.Kind, p.Status, p.ErrorClass} {
			if w != "" {
				word += ":" + w
			}
		}
		if p.Type == thread.TypeOrphaned {
			word += ":" + p.Reason
		}
		all = append(all, word)
	}
	return all
}

const opening = "signal.thread.status_changed:running signal.dispatch.session_started chat pi.session:session "

func TestOutcomes(t *testing.T) {
	completed := " signal.thread.status_changed:completed"
	cancelled := " signal.thread.status_changed:cancelled"
	failed := func(class string) string {
		return " signal.thread.pi_failed:" + class + " signal.thread.status_changed:failed"
	}
	orphaned := func(reason string) string {
		return " signal.thread.pi_session_orphaned:" + reason + " signal.thread.status_changed:failed"
	}
	for _, tt := range []struct {
		name   string
		plan   []string
		want   string
		status int
	}{
		{"plain answer", []string{"prompt", "say done"}, "pi.session:prompt pi.assistant" + completed, 0},
		{"tool turn", []string{"prompt", "call bash", "result hi", "say done"}, "pi.session:prompt pi.assistant pi.tool_result pi.assistant" + completed, 0},
		{"a second prompt is a chat", []string{"prompt", "say one", "user more", "say two"}, "pi.session:prompt pi.assistant chat pi.assistant" + completed, 0},
		{"cut at the limit", []string{"prompt", "cut do", "exit 1"}, "pi.session:prompt pi.assistant" + completed, 0},
		{"error", []string{"prompt", "fail 400 no", "exit 1"}, "pi.session:prompt pi.assistant" + failed("provider_error"), 1},
		{"error with exit 0", []string{"prompt", "fail 400 no"}, "pi.session:prompt pi.assistant" + failed("provider_error"), 1},
		{"error, then fine", []string{"prompt", "fail 500", "say done"}, "pi.session:prompt pi.assistant pi.assistant" + completed, 0},
		{"aborted, exit 0", []string{"prompt", "abort"}, "pi.session:prompt pi.assistant" + cancelled, 1},
		{"crash", []string{"prompt", "call bash", "warn boom", "exit 7"}, "pi.session:prompt pi.assistant" + failed("pi_exit"), 7},
		{"killed", []string{"prompt", "call bash", "die KILL"}, "pi.session:prompt pi.assistant" + failed("killed"), 137},
		{"killed after a good end", []string{"prompt", "say done", "die KILL"}, "pi.session:prompt pi.assistant" + failed("killed"), 137},
		{"terminated by somebody", []string{"prompt", "die TERM"}, "pi.session:prompt" + cancelled, 143},
		{"terminated after a good end", []string{"prompt", "say done", "die TERM"}, "pi.session:prompt pi.assistant" + completed, 0},
		{"ends in mid-turn with 0", []string{"prompt", "call bash"}, "pi.session:prompt pi.assistant" + failed("pi_exit"), 1},
		{"has no output", []string{"prompt"}, "pi.session:prompt" + orphaned("no_output"), 1},
		{"does nothing", nil, strings.TrimSpace(orphaned("no_output")), 1},
		{"writes lines of no known form", []string{`line {"what":"is this"}`, "line ???"}, "pi.session:other pi.session:text" + failed("unknown_format"), 1},
		{"a torn line at the end", []string{"prompt", "say done", `half {"type":"mess`}, "pi.session:prompt pi.assistant pi.session:text" + completed, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			res, err := run(t, setup(t, server, tt.plan...))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := strings.Join(types(server.Entries()), " "), opening+tt.want; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if got := res.Verdict.ExitStatus(); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
		})
	}
}

// last is the payload of the thread's last entry.
func last[T any](t *testing.T, entries []thread.Entry) (p T) {
	t.Helper()
	if err := json.Unmarshal(entries[len(entries)-1].Payload, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// patience is how long a test waits for what a mistake keeps away.
const patience = 5 * time.Minute

// awaitFile waits until a file is there.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(2 * time.Millisecond) { // between two looks
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("waited in vain for %s", path)
		}
	}
}
