package runner_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
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

// A run that the server refused at its start never began: what finishes lost runs removes its folder and posts nothing.
// Where the thread has it, because an answer was lost, it gets its end.
func TestRefusedRunIsNoLostRun(t *testing.T) {
	const failed = opening + "signal.thread.pi_failed:spawn signal.thread.status_changed:failed "
	refuse := fakethread.Fault{Status: 401}
	for _, tt := range []struct {
		name   string
		answer []fakethread.Fault // to the posts of the first start
		want   string             // of that run, on the thread
	}{
		{"401", []fakethread.Fault{refuse}, ""},
		{"403", []fakethread.Fault{{Status: 403}}, ""},
		{"an answer is lost, then 401", []fakethread.Fault{{Applied: true, Drop: true}, refuse}, failed},
		{"no answer, then 401", []fakethread.Fault{{Drop: true}, refuse}, ""},
	} {
		for _, by := range []string{"recover", "run"} {
			t.Run(tt.name+", "+by, func(t *testing.T) {
				t.Parallel()
				var open atomic.Bool
				posts := -1
				server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
					if c.Method != "POST" || open.Load() {
						return fakethread.Fault{}
					}
					posts++
					return tt.answer[min(posts, len(tt.answer)-1)]
				})
				cfg := setup(t, server, "prompt", "say done")
				if _, err := run(t, cfg); !errors.Is(err, runner.ErrRefused) {
					t.Fatalf("got %v", err)
				}
				open.Store(true)
				want := tt.want
				var err error
				if by == "run" {
					cfg.RunID = "r2"
					_, err = run(t, cfg)
					want += opening + "pi.session:prompt pi.assistant signal.thread.status_changed:completed "
				} else {
					err = runner.Recover(t.Context(), cfg, func(runfolder.Known, outcome.Verdict) {})
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(append(types(server.Entries()), ""), " "); got != want {
					t.Errorf("the thread has\n%s, want\n%s", got, want)
				}
				_, err = os.Stat(runfolder.Path(cfg.State, "t1", "r1"))
				if gone := errors.Is(err, fs.ErrNotExist); gone != (tt.want == "") {
					t.Errorf("the run's folder: %v", err)
				}
			})
		}
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
