package launch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// noting is a provider that notes what is done to its one box. making is called while the box is made.
type noting struct {
	oneBox
	did    *[]string
	making func()
}

func (n noting) Create(context.Context, sandbox.Options) (sandbox.Sandbox, error) {
	*n.did = append(*n.did, "made")
	n.making()
	return started{did: n.did}, nil
}

func (n noting) Destroy(context.Context, string) error {
	*n.did = append(*n.did, "deleted")
	return nil
}

// started is a box whose runner can be started.
type started struct {
	room
	did *[]string
}

func (s started) Detach(context.Context, sandbox.Command, string) (sandbox.Process, error) {
	*s.did = append(*s.did, "started")
	return sandbox.Process{PID: 1}, nil
}

// A run that is cancelled before its runner is started has one end, cancelled, and no box. A request without a run is
// for a task that has waited, if no run was open when it came.
func TestCancelBeforeTheRunner(t *testing.T) {
	program := filepath.Join(t.TempDir(), "runner")
	if err := os.WriteFile(program, []byte("runner"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		run     string // of the request
		meddles bool   // the request comes while the box is made, else before the launch
		queued  bool
		open    bool // another run was open when it came, and has ended since
		did     string
	}{
		{"before the launch", "r1", false, true, false, ""},
		{"before the launch, without a run", "", false, true, false, ""},
		{"before the launch, for what ran then", "", false, true, true, "made started"},
		{"before the launch of a task that has not waited", "", false, false, false, "made started"},
		{"of another run", "r0", false, true, false, "made started"},
		{"while the box is made", "r1", true, true, false, "made deleted"},
		{"while the box is made, for what runs", "", true, true, false, "made started"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, leases := fakethread.New(t, nil), fakethread.New(t, nil)
			put := func(id string, payload any) {
				server.Put(thread.Entry{ID: id, TS: "2026-01-01T00:00:00.000Z", Payload: thread.Marshal(payload)})
			}
			status := func(run, status string) thread.StatusChanged {
				return thread.StatusChanged{
					Signal: thread.Signal{Type: thread.TypeStatus, RunID: run, Harness: "pi"}, Status: status,
				}
			}
			ask := func() {
				put("c1", thread.Cancel{Signal: thread.Signal{Type: thread.TypeCancel, RunID: tt.run}})
			}
			var did []string
			p := noting{did: &did, making: func() {}}
			if tt.open {
				put("r0.running", status("r0", thread.StatusRunning))
			}
			if p.making = ask; !tt.meddles {
				ask()
				p.making = func() {}
			}
			if tt.open {
				put("r0.end.0", status("r0", thread.StatusCompleted))
			}
			l := launch.Launcher{
				Provider: p, Client: healthy(t, server), StreamURL: "http://threads.test",
				Boxes:  func(string) *client.Client { return leases.Client() },
				Agent:  launch.Agent{Program: "pi"},
				Tokens: func(string, string, string) (string, string, error) { return "w", "r", nil },
				Runner: func(string) (string, error) { return program, nil },
			}
			task := launch.Task{
				Thread: "t1", Run: "r1", Prompt: "go on", Harness: "pi", Queued: tt.queued,
				Parent: &thread.Parent{ThreadID: "p1"},
			}
			_, err := l.Launch(t.Context(), task)
			cancelled := !strings.Contains(tt.did, "started")
			if got := strings.Join(did, " "); got != tt.did || errors.Is(err, launch.ErrCancelled) != cancelled {
				t.Errorf("the box was %s, want %s: %v", got, tt.did, err)
			}
			var fold thread.Fold
			for _, e := range server.Entries() {
				fold.Add(e)
			}
			run, _ := fold.Run("r1")
			if (run.Status == thread.StatusCancelled) != cancelled || run.Provisional || run.Parent == nil {
				t.Errorf("the run is %+v", run)
			}
			if !cancelled {
				return
			}
			before := len(server.Entries()) // a repeat, by a host that finds the task again, does nothing
			_, err = l.Launch(t.Context(), task)
			if more := len(server.Entries()) - before; !errors.Is(err, launch.ErrLaunched) || more > 0 {
				t.Errorf("again: %v, %d entries more", err, more)
			}
		})
	}
}

// A task that waits is withdrawn where its thread asks for that, and a host that comes later does not launch it. One of
// which an earlier launch may have started the runner gets a provisional end, which that runner's own replaces.
func TestWithdraw(t *testing.T) {
	for _, begun := range []bool{false, true} {
		server := fakethread.New(t, nil)
		l := launch.Launcher{Client: healthy(t, server)}
		task := launch.Task{Thread: "t1", Run: "r1", Prompt: "go on", Harness: "pi", Queued: true}
		if begun {
			server.Put(thread.Entry{ID: "r1.running", TS: "2026-01-01T00:00:00.000Z", Payload: thread.Marshal(
				thread.StatusChanged{
					Signal: thread.Signal{Type: thread.TypeStatus, RunID: "r1", Harness: "pi"},
					Status: thread.StatusRunning,
				})})
		}
		if asked, err := l.Cancelled(t.Context(), task); asked || err != nil {
			t.Errorf("nobody has asked: %v, %v", asked, err)
		}
		if err := l.Withdraw(t.Context(), task); err == nil {
			t.Error("withdrawn, and nobody has asked")
		}
		server.Put(thread.Entry{ID: "c1", TS: "2026-01-01T00:00:00.000Z", Payload: thread.Marshal(
			thread.Cancel{Signal: thread.Signal{Type: thread.TypeCancel, RunID: "r1"}})})
		if asked, err := l.Cancelled(t.Context(), task); !asked || err != nil {
			t.Errorf("asked: %v, %v", asked, err)
		}
		for range 2 {
			if err := l.Withdraw(t.Context(), task); err != nil {
				t.Error(err)
			}
		}
		var fold thread.Fold
		var ids []string
		for _, e := range server.Entries() {
			fold.Add(e)
			ids = append(ids, e.ID)
		}
		run, _ := fold.Run("r1")
		if run.Status != thread.StatusCancelled || run.Provisional != begun {
			t.Errorf("the run is %+v", run)
		}
		want := []string{"c1", "run.0", "r1.prompt", "r1.running", "r1.end.0"}
		if begun {
			want = []string{"r1.running", "c1", "r1.orphan.0"}
		}
		if !slices.Equal(ids, want) {
			t.Errorf("the thread has %v, want %v", ids, want)
		}
		if err := l.Refuse(t.Context(), task, errors.New("no room")); err != nil {
			t.Error(err)
		}
		if _, err := l.Launch(t.Context(), task); !errors.Is(err, launch.ErrLaunched) {
			t.Errorf("launched afterwards: %v", err)
		}
	}
}
