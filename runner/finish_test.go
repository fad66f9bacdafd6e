package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
	"arbe.0sk.ar/runner/thread/redact"
)

func TestTerminal(t *testing.T) {
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "call bash", "warn my secret-value-1 is out", "warn boom", "exit 7")
	cfg.Redact = redact.New([]string{"A_KEY=secret-value-1"}, nil)
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
	if cause.ErrorClass != "pi_exit" || *cause.ExitCode != 7 || cause.StopReason != "toolUse" ||
		cause.Provider != "fake" || cause.Model != "fake-1" ||
		cause.StderrTail != "my [redacted:A_KEY] is out\nboom\n" ||
		cause.Message != "the agent ended with exit status 7: boom" ||
		cause.RunID != "r1" ||
		cause.Harness != "pi" {
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
		totals.DurationMs <= 0 ||
		totals.StopReason != "toolUse" ||
		*totals.ExitCode != 7 ||
		totals.ExitSignal != nil {
		t.Errorf("got %+v %+v after %d lines", totals.Totals, totals, lines)
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

// A run whose thread is deleted while its agent works ends with its agent: nobody takes the rest.
func TestThreadDeleted(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there")
	server := fakethread.New(t, func(fakethread.Call) fakethread.Fault {
		if _, err := os.Stat(there); err != nil {
			return fakethread.Fault{}
		}
		return fakethread.Fault{Status: 410}
	})
	cfg := setup(t, server, "prompt", "touch "+there, "say done")
	res, err := runner.RunAlone(t.Context(), t.Context(), cfg)
	if !errors.Is(err, runner.ErrUndelivered) || !client.Gone(err) {
		t.Fatalf("got %v", err)
	}
	if res.Verdict.Outcome != outcome.Completed {
		t.Errorf("got %+v", res.Verdict)
	}
}

// What can't be delivered is kept, as it would have been posted.
func TestUndelivered(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there")
	ctx, abandon := context.WithCancel(t.Context())
	defer abandon()
	state := ""
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		if _, err := os.Stat(there); err != nil {
			return fakethread.Fault{}
		}
		if _, err := os.Stat(filepath.Join(runfolder.Path(state, "t1", "r1"), "terminal.json")); err == nil {
			abandon() // in the middle of its delivery
		}
		return fakethread.Fault{Status: 503}
	})
	cfg := setup(t, server, "prompt", "say done", "touch "+there)
	state = cfg.State
	res, err := runner.RunAlone(t.Context(), ctx, cfg)
	if !errors.Is(err, runner.ErrUndelivered) {
		t.Fatalf("got %v", err)
	}
	b, err := os.ReadFile(filepath.Join(res.Folder, "terminal.json"))
	if err != nil {
		t.Fatal(err)
	}
	var entries []thread.Entry
	if err := json.Unmarshal(b, &entries); err != nil || len(entries) != 1 || entries[0].ID != "r1.end.0" {
		t.Errorf("kept %s, %v", b, err)
	}
	runs, err := runfolder.List(cfg.State)
	if err != nil || len(runs) != 1 || runs[0].State != "lost" || runs[0].Verdict.Outcome != outcome.Completed {
		t.Errorf("known are %+v, %v", runs, err)
	}
}
