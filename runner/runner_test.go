package runner_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/thread"
)

func TestMain(m *testing.M) {
	harness.Main()
	if os.Getenv(fakeagent.PlanVar) != "" {
		os.Exit(fakeagent.Main())
	}
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
		Spec: spec, Version: "test", ThreadID: "t1", RunID: "r1", Binary: self, Prompt: "do it", Cwd: dir, State: filepath.Join(dir, "state"),
		Environ: []string{"PATH=" + os.Getenv("PATH"), fakeagent.PlanVar + "=" + file, "HOME=" + dir, "GORACE=atexit_sleep_ms=0"},
		Client:  client, Log: log, Stdout: io.Discard, Stderr: io.Discard,
	}
}

func run(t *testing.T, cfg runner.Config) (runner.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return runner.Run(ctx, ctx, cfg)
}

// types are the thread's entries in short: the type, and what makes it what it is.
func types(entries []thread.Entry) []string {
	var all []string
	for _, e := range entries {
		var p struct{ Type, Kind, Status, ErrorClass, Reason, StopReason string }
		_ = json.Unmarshal(e.Payload, &p) // what doesn't fit is not shown
		word := p.Type
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
		{"says nothing", []string{"prompt"}, "pi.session:prompt" + orphaned("no_output"), 1},
		{"does nothing", nil, strings.TrimSpace(orphaned("no_output")), 1},
		{"writes what nobody knows", []string{`line {"what":"is this"}`, "line ???"}, "pi.session:other pi.session:text" + failed("unknown_format"), 1},
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

func TestTerminal(t *testing.T) {
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "call bash", "warn my secret-value-1 is out", "warn boom", "exit 7")
	cfg.Redact = thread.NewRedactor([]string{"A_KEY=secret-value-1"}, nil)
	cfg.Author = "me"
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	entries := server.Entries()
	n := len(entries)
	if entries[n-2].ID != "r1.end.0" || entries[n-1].ID != "r1.end.1" {
		t.Errorf("the terminal is %s and %s", entries[n-2].ID, entries[n-1].ID)
	}
	cause := last[thread.Failed](t, entries[:n-1])
	if cause.ErrorClass != "pi_exit" || *cause.ExitCode != 7 || cause.StopReason != "toolUse" || cause.Provider != "fake" || cause.Model != "fake-1" ||
		cause.StderrTail != "my [redacted:A_KEY] is out\nboom\n" || cause.Message != "the agent ended with exit status 7: boom" || cause.RunID != "r1" || cause.Harness != "pi" {
		t.Errorf("got %+v", cause)
	}
	totals := last[thread.StatusChanged](t, entries)
	lines := 0
	for _, e := range entries {
		if e.AuthorID != "me" {
			t.Errorf("%s is by %q", e.ID, e.AuthorID)
		}
		if strings.HasPrefix(e.ID, "pi:") {
			lines++
		}
	}
	if totals.Lines != int64(lines) || totals.Digest != digestOf(entries) || string(totals.Usage) != `{"cost":{"total":0.5},"input":10,"output":2,"totalTokens":12}` ||
		totals.DurationMs <= 0 || totals.StopReason != "toolUse" || *totals.ExitCode != 7 || totals.ExitSignal != nil {
		t.Errorf("got %+v %+v after %d lines", totals.Totals, totals, lines)
	}
}

// The agent gets the prompt as it is, works where it should, and sees nothing of ours.
func TestAgentEnvironment(t *testing.T) {
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "env ARBE_STREAM_TOKEN", "env ARBE_STREAM_URL", "env ARBE_THREAD_ID", "env ARBE_RUN_ID", "env ARBE_WHATEVER", "env DURABLE_STREAMS_SECRET",
		"env DAYTONA_API_KEY", "env PI_TELEMETRY", "env KEPT", "env PWD", "prompt", "say ok")
	cfg.Prompt = "-- @file \"quotes\" \n\ttwo lines  \n"
	cfg.Environ = append(cfg.Environ, "ARBE_STREAM_TOKEN=x", "ARBE_STREAM_URL=x", "ARBE_THREAD_ID=wrong", "ARBE_WHATEVER=x", "DURABLE_STREAMS_SECRET=x", "DAYTONA_API_KEY=x", "PI_TELEMETRY=1", "KEPT=yes", "PWD=/somewhere")
	res, err := run(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(filepath.Join(res.Folder, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	want := "ARBE_STREAM_TOKEN=(unset)\nARBE_STREAM_URL=(unset)\nARBE_THREAD_ID=t1\nARBE_RUN_ID=r1\nARBE_WHATEVER=(unset)\nDURABLE_STREAMS_SECRET=(unset)\n" +
		"DAYTONA_API_KEY=(unset)\nPI_TELEMETRY=1\nKEPT=yes\nPWD=" + cfg.Cwd + "\n"
	if string(out) != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
	for _, e := range server.Entries() {
		if e.ID != "pi:"+sessionOf(t, server)+":m1" {
			continue
		}
		var p struct {
			Line struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatal(err)
		}
		if got := p.Line.Message.Content; got != cfg.Prompt {
			t.Errorf("the agent got %q, want %q", got, cfg.Prompt)
		}
		return
	}
	t.Error("no prompt on the thread")
}

func sessionOf(t *testing.T, server *fakethread.Server) string {
	t.Helper()
	for _, e := range server.Entries() {
		if id, ok := strings.CutPrefix(e.ID, "pi:"); ok {
			id, _, _ = strings.Cut(id, ":")
			return id
		}
	}
	t.Fatal("no lines on the thread")
	return ""
}

// stopWhen runs cfg and ends it, with the cause, when the file is there.
func stopWhen(t *testing.T, cfg runner.Config, file string, cause error) (runner.Result, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	done := make(chan runner.Result, 1)
	go func() {
		res, err := runner.Run(ctx, t.Context(), cfg)
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	for {
		if _, err := os.Stat(file); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond) // until the plan is there
	}
	began := time.Now()
	cancel(cause)
	return <-done, time.Since(began)
}

func TestCancel(t *testing.T) {
	for _, tt := range []struct {
		name   string
		plan   []string
		want   outcome.Outcome
		status int
		within time.Duration
	}{
		{"in order", []string{"prompt", "on TERM 143", "call bash"}, outcome.Cancelled, 143, 2 * time.Second},
		{"by the signal's own effect", []string{"prompt", "call bash"}, outcome.Cancelled, 143, 2 * time.Second},
		{"one that will not", []string{"prompt", "ignore TERM", "call bash"}, outcome.Cancelled, 137, 7 * time.Second},
		{"after a good end", []string{"prompt", "on TERM 143", "say done"}, outcome.Completed, 0, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			there := filepath.Join(t.TempDir(), "there")
			cfg := setup(t, server, append(tt.plan, "touch "+there, "sleep 60s")...)
			res, took := stopWhen(t, cfg, there, errors.New("SIGTERM"))
			if res.Verdict.Outcome != tt.want || res.Verdict.ExitStatus() != tt.status {
				t.Errorf("got %+v, status %d", res.Verdict, res.Verdict.ExitStatus())
			}
			if took > tt.within {
				t.Errorf("took %v", took)
			}
			end := last[thread.StatusChanged](t, server.Entries())
			if tt.want == outcome.Cancelled && (end.Totals.Reason != "the run was cancelled: SIGTERM" || end.Status != "cancelled") {
				t.Errorf("the thread says %+v", end.Totals)
			}
		})
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "fail 500", "sleep 60s")
	cfg.Guard = 300 * time.Millisecond
	res, err := run(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if v := res.Verdict; v.Outcome != outcome.Failed || v.ErrorClass != outcome.ClassTimeout || v.Message != "the runaway guard ended the agent: it ran for 300ms" {
		t.Errorf("got %+v", v)
	}
}

// An agent that has ended well and will not go is ended, and the run is completed.
func TestLinger(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "say done", "ignore TERM", "sleep 60s")
	cfg.Patience = 500 * time.Millisecond
	res, err := run(t, cfg)
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
	cfg := setup(t, server, "prompt", "line "+tool, "sleep 3s", "exit 0")
	cfg.Patience = 500 * time.Millisecond
	res, err := run(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if v := res.Verdict; v.Outcome != outcome.Completed || v.Exit != outcome.ExitCode(0) {
		t.Errorf("got %+v", v)
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "sleep 1500ms", "say done")
	cfg.Heartbeat = 200 * time.Millisecond
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	var beats []thread.Heartbeat
	for _, e := range server.Entries() {
		if strings.HasPrefix(e.ID, "r1.beat.") {
			var p thread.Heartbeat
			if err := json.Unmarshal(e.Payload, &p); err != nil {
				t.Fatal(err)
			}
			if e.ID != "r1.beat."+strconv.FormatInt(p.Beat, 10) || p.RunID != "r1" || p.Harness != "pi" {
				t.Errorf("%s: %+v", e.ID, p)
			}
			if p.Posted == 2 { // while the agent is at work
				beats = append(beats, p)
			}
		}
	}
	if len(beats) < 3 {
		t.Fatalf("%d heartbeats in 1.5 s", len(beats))
	}
	b := beats[len(beats)-1]
	if b.Pending != 0 || b.UptimeMs < 500 || b.Agent == nil || b.Agent.RSSBytes < 1<<20 || b.Agent.QuietMs < 300 || b.Agent.PID == 0 {
		t.Errorf("got %+v %+v", b, b.Agent)
	}
}

func TestRefusedAtTheStart(t *testing.T) {
	conflict := `{"error":{"code":"conflict","message":"taken","entries":[{"index":1,"id":"r1.started","reason":"taken"}]}}`
	for _, tt := range []struct {
		name  string
		fault fakethread.Fault
		want  error
	}{
		{"401", fakethread.Fault{Status: 401}, runner.ErrRefused},
		{"403", fakethread.Fault{Status: 403}, runner.ErrRefused},
		{"another runner has it", fakethread.Fault{Status: 409, Body: conflict}, runner.ErrTaken},
		{"bad entry", fakethread.Fault{Status: 400, Body: strings.ReplaceAll(conflict, "taken", "odd")}, runner.ErrRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := fakethread.New(t, func(fakethread.Call) fakethread.Fault { return tt.fault })
			there := filepath.Join(t.TempDir(), "there")
			_, err := run(t, setup(t, server, "touch "+there))
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if _, err := os.Stat(there); err == nil {
				t.Error("the agent was started")
			}
		})
	}
}

// The started entry names the runner's process so that it can't be mistaken for a later one with the same pid.
func TestStartedNamesTheProcess(t *testing.T) {
	server := fakethread.New(t, nil)
	if _, err := run(t, setup(t, server, "prompt", "say done")); err != nil {
		t.Fatal(err)
	}
	var p struct {
		PID        int
		StartTicks uint64
		BootID     string
	}
	if err := json.Unmarshal(server.Entries()[1].Payload, &p); err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	self, err := harness.ReadStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if p.PID != os.Getpid() || p.StartTicks != self.Started || p.BootID != strings.TrimSpace(string(boot)) {
		t.Errorf("got %+v, want pid %d, start %d, boot %s", p, os.Getpid(), self.Started, boot)
	}
}

// What the host has posted is delivered, whatever its payload.
func TestHostWasFirst(t *testing.T) {
	for name, old := range map[string]bool{"arrays": false, "single posts": true} {
		t.Run(name, func(t *testing.T) {
			server := fakethread.New(t, nil)
			if old {
				server.Old()
			}
			server.Allow("r1.prompt")
			server.Put(thread.Entry{ID: "r1.prompt", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(`{"type":"chat","text":"the host's own words","runId":"r1"}`)})
			server.Put(thread.Entry{ID: "r1.running", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(`{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"running"}`)})
			res, err := run(t, setup(t, server, "prompt", "say done"))
			if err != nil || res.Verdict.Outcome != outcome.Completed {
				t.Fatalf("got %+v, %v", res.Verdict, err)
			}
			want := "chat signal.thread.status_changed:running signal.dispatch.session_started pi.session:session pi.session:prompt pi.assistant signal.thread.status_changed:completed"
			if got := strings.Join(types(server.Entries()), " "); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// A server that is away at the start does not keep the agent from its work, and gets everything in order later.
func TestServerAwayAtTheStart(t *testing.T) {
	t.Parallel()
	there := filepath.Join(t.TempDir(), "there")
	server := fakethread.New(t, func(fakethread.Call) fakethread.Fault {
		if _, err := os.Stat(there); err == nil {
			return fakethread.Fault{}
		}
		return fakethread.Fault{Status: 503}
	})
	cfg := setup(t, server, "prompt", "say done", "touch "+there)
	cfg.Patience = 500 * time.Millisecond
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(types(server.Entries()), " "), opening+"pi.session:prompt pi.assistant signal.thread.status_changed:completed"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A run whose beginning comes through late, and turns out to be another runner's, is ended without a word.
func TestTakenLate(t *testing.T) {
	t.Parallel()
	there := filepath.Join(t.TempDir(), "there")
	server := fakethread.New(t, func(fakethread.Call) fakethread.Fault {
		if _, err := os.Stat(there); err == nil {
			return fakethread.Fault{}
		}
		return fakethread.Fault{Status: 503}
	})
	server.Allow("r1.started")
	server.Put(thread.Entry{ID: "r1.started", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(`{"type":"signal.dispatch.session_started","runId":"r1","harness":"pi","pid":1}`)})
	cfg := setup(t, server, "prompt", "touch "+there, "sleep 60s")
	cfg.Patience = 500 * time.Millisecond
	if _, err := run(t, cfg); !errors.Is(err, runner.ErrTaken) {
		t.Errorf("got %v", err)
	}
	if n := len(server.Entries()); n != 1 {
		t.Errorf("the thread has %v", types(server.Entries()))
	}
}

// Whatever happens to the terminal's post, the terminal is there once.
func TestTerminalFaults(t *testing.T) {
	for name, fault := range map[string]fakethread.Fault{
		"500": {Status: 500}, "500 applied": {Status: 500, Applied: true}, "dropped": {Drop: true}, "dropped, applied": {Drop: true, Applied: true}, "401": {Status: 401},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := 0
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				if n := len(c.Entries); n > 0 && strings.HasPrefix(c.Entries[n-1].ID, "r1.end.") && failed < 3 {
					failed++
					return fault
				}
				return fakethread.Fault{}
			})
			res, err := run(t, setup(t, server, "prompt", "exit 3"))
			if err != nil || res.Verdict.ExitStatus() != 3 {
				t.Fatalf("got %+v, %v", res.Verdict, err)
			}
			want := opening + "pi.session:prompt signal.thread.pi_failed:pi_exit signal.thread.status_changed:failed"
			if got := strings.Join(types(server.Entries()), " "); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// What can't be delivered is kept, as it would have been posted.
func TestUndelivered(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there")
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		if _, err := os.Stat(there); err == nil {
			return fakethread.Fault{Status: 503}
		}
		return fakethread.Fault{}
	})
	cfg := setup(t, server, "prompt", "say done", "touch "+there)
	ctx, abandon := context.WithTimeout(t.Context(), 3*time.Second)
	defer abandon()
	res, err := runner.Run(t.Context(), ctx, cfg)
	if !errors.Is(err, runner.ErrUndelivered) {
		t.Fatalf("got %v", err)
	}
	b, err := os.ReadFile(filepath.Join(res.Folder, "terminal.json"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := runner.ReadTerminal(b)
	if err != nil || len(entries) != 1 || entries[0].ID != "r1.end.0" {
		t.Errorf("kept %s, %v", b, err)
	}
	runs, err := runner.List(cfg.State)
	if err != nil || len(runs) != 1 || runs[0].State != "lost" || runs[0].Verdict.Outcome != outcome.Completed {
		t.Errorf("known are %+v, %v", runs, err)
	}
}

func TestNotStarted(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("{\"hello\":1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var missing *harness.NotFoundError
	for _, tt := range []struct {
		name   string
		change func(*runner.Config)
		is     func(error) bool
	}{
		{"not installed", func(c *runner.Config) { c.Binary = "/no/such/pi" }, func(err error) bool { return errors.As(err, &missing) }},
		{"not executable", func(c *runner.Config) { c.Binary = garbage }, func(err error) bool { return errors.As(err, &missing) }},
		{"no such folder", func(c *runner.Config) { c.Cwd = "/no/such/dir" }, func(err error) bool { return errors.Is(err, os.ErrNotExist) }},
		{"no session file", func(c *runner.Config) { c.Session = garbage }, func(err error) bool { return errors.Is(err, runner.ErrNoSession) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := fakethread.New(t, nil)
			cfg := setup(t, server, "prompt")
			tt.change(&cfg)
			res, err := run(t, cfg)
			if err != nil || res.NotStarted == nil || !tt.is(res.NotStarted) {
				t.Fatalf("got %v, not started because of %v", err, res.NotStarted)
			}
			got := types(server.Entries())
			if n := len(got); n < 5 || got[n-2] != "signal.thread.pi_failed:spawn" || got[n-1] != "signal.thread.status_changed:failed" {
				t.Errorf("the thread has %v", got)
			}
			b, err := os.ReadFile(garbage)
			if err != nil || string(b) != "{\"hello\":1}\n" {
				t.Errorf("the file that is no session is now %q, %v", b, err)
			}
		})
	}
}

// A session that is continued: its old lines are no lines of this run, and a line without an end gets one.
func TestContinuedSession(t *testing.T) {
	old := `{"type":"session","version":3,"id":"old-session","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}
{"type":"message","id":"o1","parentId":null,"timestamp":"2026-01-01T00:00:01.000Z","message":{"role":"user","content":"before"}}
{"type":"message","id":"o2","parentId":"o1","timestamp":"2026-01-01T00:00:02.000Z","message":{"role":"assistant","content":[],"stopReason":"stop"}}`
	path := filepath.Join(t.TempDir(), "old.jsonl")
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt")
	cfg.Session = path
	res, err := run(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if v := res.Verdict; v.Outcome != outcome.Orphaned || v.StopReason != "none" {
		t.Errorf("the old answer counts for this run: %+v", v)
	}
	want := "signal.thread.status_changed:running signal.dispatch.session_started chat pi.session:session chat pi.assistant pi.session:prompt " +
		"signal.thread.pi_session_orphaned:no_output signal.thread.status_changed:failed"
	if got := strings.Join(types(server.Entries()), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if end := last[thread.StatusChanged](t, server.Entries()); end.Lines != 1 {
		t.Errorf("%d lines of this run", end.Lines)
	}
}

// The session file changes in mid-run: what the run came to is decided from its lines, each counted once.
func TestChangedSession(t *testing.T) {
	for _, verb := range []string{"replace", "delete", "truncate"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			server.Rewritten()
			there := filepath.Join(t.TempDir(), "there")
			cfg := setup(t, server, "prompt", "call bash", "wait "+there, verb, "result ok", "say done", "exit 0")
			done := make(chan runner.Result, 1)
			go func() {
				res, err := run(t, cfg)
				if err != nil {
					t.Error(err)
				}
				done <- res
			}()
			for len(server.Entries()) < 6 { // until the lines before the change are on the thread
				time.Sleep(5 * time.Millisecond)
			}
			if err := os.WriteFile(there, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if res := <-done; res.Verdict.Outcome != outcome.Completed {
				t.Errorf("got %+v", res.Verdict)
			}
			entries := server.Entries()
			want := opening + "pi.session:prompt pi.assistant pi.tool_result pi.assistant signal.thread.status_changed:completed"
			if got := strings.Join(types(entries), " "); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if end := last[thread.StatusChanged](t, entries); end.Lines != 5 || end.Digest != digestOf(entries) {
				t.Errorf("the end speaks of %d lines, %s", end.Lines, end.Digest)
			}
		})
	}
}

// digestOf is the digest of the lines among the entries.
func digestOf(entries []thread.Entry) string {
	hash := sha256.New()
	for _, e := range entries {
		if strings.HasPrefix(e.ID, "pi:") {
			fmt.Fprintln(hash, e.ID)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func TestBusy(t *testing.T) {
	server := fakethread.New(t, nil)
	there := filepath.Join(t.TempDir(), "there")
	cfg := setup(t, server, "prompt", "touch "+there, "sleep 60s")
	second := cfg
	second.RunID = "r2"
	done := make(chan error, 1)
	go func() {
		for {
			if _, err := os.Stat(there); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond) // until the first run is there
		}
		_, err := runner.Run(t.Context(), t.Context(), second)
		runs, listErr := runner.List(cfg.State)
		if listErr != nil || len(runs) != 1 || runs[0].State != "running" || runs[0].AgentPID == 0 {
			t.Errorf("known are %+v, %v", runs, listErr)
		}
		done <- err
		if err := syscall.Kill(runs[0].AgentPID, syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}()
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	var busy *runner.BusyError
	if err := <-done; !errors.As(err, &busy) || !strings.Contains(err.Error(), "run r1, pid "+strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v", err)
	}
	runs, err := runner.List(cfg.State)
	if err != nil || len(runs) != 1 || runs[0].State != "delivered" || runs[0].OnThread != 2 || runs[0].Verdict.Outcome != outcome.Cancelled {
		t.Errorf("known are %+v, %v", runs, err)
	}
}

// A grandchild that keeps the agent's stdout open delays nothing.
func TestGrandchildHoldsOutput(t *testing.T) {
	server := fakethread.New(t, nil)
	pidFile := filepath.Join(t.TempDir(), "pid")
	cfg := setup(t, server, "prompt", "grandchild "+pidFile, "wait "+pidFile, "say done")
	began := time.Now()
	res, err := run(t, cfg)
	if err != nil || res.Verdict.Outcome != outcome.Completed {
		t.Fatalf("got %+v, %v", res.Verdict, err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
	b, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error("the grandchild is gone:", err)
	}
}

// However much the agent prints, the disk holds a little of it, the end.
func TestOutputIsCapped(t *testing.T) {
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "flood 100000000", "sleep 1500ms", "print the end", "say done")
	res, err := run(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(res.Folder, "stdout")
	b, err := os.ReadFile(path)
	if err != nil || len(b) > 16<<20 || !strings.HasSuffix(string(b), "0\nthe end\n") && !strings.HasSuffix(string(b), "0the end\n") {
		t.Errorf("%d bytes are kept, %v", len(b), err)
	}
}
