package runner_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
)

func TestNext(t *testing.T) {
	exit := outcome.ExitCode(1)
	opened := runfolder.Fact{Fact: runfolder.FactOpened}
	spawned := runfolder.Fact{Fact: runfolder.FactSpawned, PID: 7}
	unbegun := runfolder.Fact{Fact: runfolder.FactExited, Exit: &harness.NotBegun}
	exited := runfolder.Fact{Fact: runfolder.FactExited, Exit: &exit}
	action := runfolder.Fact{Fact: runfolder.FactAction, Action: outcome.ActionCancel}
	failed := runfolder.Fact{Fact: runfolder.FactNotStarted, Status: 69}
	decided := runfolder.Fact{Fact: runfolder.FactDecided}
	for _, tt := range []struct {
		name                string
		facts               []runfolder.Fact
		notStarted, stopped bool
		want                string
	}{
		{"a new run", nil, false, false, "spawn"},
		{"the thread has its beginning", []runfolder.Fact{opened}, false, false, "spawn"},
		{"stopped before the agent began", []runfolder.Fact{opened}, false, true, "cancel"},
		{"a worker that stopped it died", []runfolder.Fact{opened, action}, false, false, "cancel"},
		{"the agent can't be started", []runfolder.Fact{opened}, true, false, "fail"},
		{"it can't be started, and is stopped", []runfolder.Fact{opened}, true, true, "fail"},
		{"an earlier worker could not start it", []runfolder.Fact{opened, failed}, true, false, "fail"},
		{"it failed after its process was there", []runfolder.Fact{spawned, failed}, true, false, "fail"},
		{"it may be running", []runfolder.Fact{opened, spawned}, false, false, "adopt"},
		{"it may be running, and is stopped", []runfolder.Fact{opened, spawned}, false, true, "adopt"},
		{"a worker died while it ended it", []runfolder.Fact{opened, spawned, action}, false, false, "adopt"},
		{"it has ended", []runfolder.Fact{opened, spawned, exited}, false, false, "settle"},
		{"it has ended, and the run is stopped", []runfolder.Fact{opened, spawned, exited}, false, true, "settle"},
		{"its process did not become it", []runfolder.Fact{opened, spawned, unbegun}, false, false, "settle"},
		{"and was made again", []runfolder.Fact{opened, spawned, unbegun, spawned}, false, false, "adopt"},
		{"the verdict is decided", []runfolder.Fact{opened, spawned, exited, decided}, false, true, "none"},
		{"the verdict of a failed start is decided", []runfolder.Fact{failed, decided}, true, false, "none"},
	} {
		if got := runner.Next(tt.facts, tt.notStarted, tt.stopped); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// The agent gets the prompt as it is, works where it should, and sees nothing of ours.
func TestAgentEnvironment(t *testing.T) {
	server := fakethread.New(t, nil)
	cfg := setup(
		t, server, "env ARBE_STREAM_TOKEN", "env ARBE_STREAM_URL", "env ARBE_THREAD_ID", "env ARBE_RUN_ID",
		"env ARBE_WHATEVER", "env DURABLE_STREAMS_SECRET", "env DAYTONA_API_KEY", "env PI_TELEMETRY", "env KEPT",
		"env PWD", "prompt", "say ok",
	)
	cfg.Prompt = "-- @file \"quotes\" \n\ttwo lines  \n"
	cfg.Environ = append(
		cfg.Environ, "ARBE_STREAM_TOKEN=x", "ARBE_STREAM_URL=x", "ARBE_THREAD_ID=wrong", "ARBE_WHATEVER=x",
		"DURABLE_STREAMS_SECRET=x", "DAYTONA_API_KEY=x", "PI_TELEMETRY=1", "KEPT=yes", "PWD=/somewhere",
	)
	res, err := run(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(filepath.Join(res.Folder, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	want := "ARBE_STREAM_TOKEN=(unset)\nARBE_STREAM_URL=(unset)\nARBE_THREAD_ID=t1\nARBE_RUN_ID=r1\n" +
		"ARBE_WHATEVER=(unset)\nDURABLE_STREAMS_SECRET=(unset)\n" +
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
			if n := len(got); n < 5 || got[n-2] != "signal.thread.pi_failed:spawn" ||
				got[n-1] != "signal.thread.status_changed:failed" {
				t.Errorf("the thread has %v", got)
			}
			b, err := os.ReadFile(garbage)
			if err != nil || string(b) != "{\"hello\":1}\n" {
				t.Errorf("the file that is no session is now %q, %v", b, err)
			}
		})
	}
}

// A grandchild that keeps the agent's stdout open delays nothing.
func TestGrandchildHoldsOutput(t *testing.T) {
	server := fakethread.New(t, nil)
	pidFile := filepath.Join(t.TempDir(), "pid")
	cfg := setup(t, server, "prompt", "grandchild "+pidFile, "wait "+pidFile, "say done")
	res, err := run(t, cfg)
	if err != nil || res.Verdict.Outcome != outcome.Completed {
		t.Fatalf("got %+v, %v", res.Verdict, err)
	}
	// It is there still: the run has not waited for it.
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
