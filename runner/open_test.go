package runner_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/thread"
)

func TestRefusedAtTheStart(t *testing.T) {
	conflict := `{"error":{"code":"conflict","message":"taken","entries":[{"index":1,"id":"r1.started","reason":"taken"}]}}`
	for _, tt := range []struct {
		name  string
		fault fakethread.Fault
		want  error
	}{
		{"401", fakethread.Fault{Status: 401}, runner.ErrRefused},
		{"403", fakethread.Fault{Status: 403}, runner.ErrRefused},
		{"410", fakethread.Fault{Status: 410}, runner.ErrRefused},
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
	self, err := procfs.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if p.PID != os.Getpid() || p.StartTicks != self.Started || p.BootID != strings.TrimSpace(string(boot)) {
		t.Errorf("got %+v, want pid %d, start %d, boot %s", p, os.Getpid(), self.Started, boot)
	}
}

// An entry that the host has posted counts as delivered, with any payload.
func TestPostedByTheHost(t *testing.T) {
	for name, old := range map[string]bool{"arrays": false, "single posts": true} {
		t.Run(name, func(t *testing.T) {
			server := fakethread.New(t, nil)
			if old {
				server.Old()
			}
			server.Allow("r1.prompt")
			server.Put(
				thread.Entry{
					ID:      "r1.prompt",
					TS:      "2026-01-01T00:00:00.000Z",
					Payload: []byte(`{"type":"chat","text":"the host's own words","runId":"r1"}`),
				},
			)
			server.Put(
				thread.Entry{
					ID: "r1.running",
					TS: "2026-01-01T00:00:00.000Z",
					Payload: []byte(
						`{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"running"}`,
					),
				},
			)
			res, err := run(t, setup(t, server, "prompt", "say done"))
			if err != nil || res.Verdict.Outcome != outcome.Completed {
				t.Fatalf("got %+v, %v", res.Verdict, err)
			}
			want := "chat signal.thread.status_changed:running signal.dispatch.session_started pi.session:session " +
				"pi.session:prompt pi.assistant signal.thread.status_changed:completed"
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
	cfg.Timeout = 500 * time.Millisecond
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(types(server.Entries()), " "), opening+
		"pi.session:prompt pi.assistant signal.thread.status_changed:completed"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A run whose start arrives late, on a thread where another runner has it, ends and posts nothing.
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
	server.Put(
		thread.Entry{
			ID:      "r1.started",
			TS:      "2026-01-01T00:00:00.000Z",
			Payload: []byte(`{"type":"signal.dispatch.session_started","runId":"r1","harness":"pi","pid":1}`),
		},
	)
	cfg := setup(t, server, "prompt", "touch "+there, "sleep 60s")
	cfg.Timeout = 500 * time.Millisecond
	if _, err := run(t, cfg); !errors.Is(err, runner.ErrTaken) {
		t.Errorf("got %v", err)
	}
	if n := len(server.Entries()); n != 1 {
		t.Errorf("the thread has %v", types(server.Entries()))
	}
}
