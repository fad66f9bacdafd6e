package launch_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// oneBox is a provider with a live box, which can't be opened.
type oneBox struct{ labels map[string]string }

func (oneBox) Name() string { return "cloud" }

func (oneBox) Probe(context.Context, string) (sandbox.Health, string, error) {
	return sandbox.Live, "started", nil
}

func (b oneBox) List(_ context.Context, labels map[string]string) ([]sandbox.Box, error) {
	if len(labels) == 0 {
		return nil, errors.New("asked for all boxes")
	}
	return []sandbox.Box{
		{Ref: sandbox.Ref{Provider: "cloud", ID: "other"}, Labels: map[string]string{sandbox.LabelRow: "s2"}},
		{Ref: sandbox.Ref{Provider: "cloud", ID: "b1"}, Labels: b.labels},
	}, nil
}

func (oneBox) Runs(context.Context, string, sandbox.Process) (bool, error) { return false, nil }

func (oneBox) Open(context.Context, string) (sandbox.Sandbox, error) {
	return nil, errors.New("not opened")
}

func (oneBox) Create(context.Context, sandbox.Options) (sandbox.Sandbox, error) {
	return nil, errors.New("not made")
}

func (oneBox) Destroy(context.Context, string) error { return errors.New("not destroyed") }

// healthy returns a client of a server that also answers whether it is well.
func healthy(t *testing.T, server *fakethread.Server) *client.Client {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	mux.Handle("/", server)
	whole := httptest.NewServer(mux)
	t.Cleanup(whole.Close)
	cl := server.Client()
	cl.Base = thread.BaseURL(whole.URL)
	return cl
}

// A launch without rows neither holds nor opens the box of a thread if that has a row. One without a row it holds.
func TestFormerBoxWithARow(t *testing.T) {
	for _, tt := range []struct {
		name   string
		labels map[string]string
		has    bool
	}{
		{"with a row", map[string]string{sandbox.LabelRow: "s1"}, true},
		{"without", map[string]string{sandbox.LabelThread: "t1"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, leases := fakethread.New(t, nil), fakethread.New(t, nil)
			signal := thread.Signal{RunID: "r1", Harness: "pi"}
			put := func(id, typ string, payload func(thread.Signal) any) {
				s := signal
				s.Type = typ
				server.Put(thread.Entry{ID: id, TS: "2026-01-01T00:00:00.000Z", Payload: thread.Marshal(payload(s))})
			}
			put("r1.running", thread.TypeStatus, func(s thread.Signal) any {
				return thread.StatusChanged{Signal: s, Status: thread.StatusRunning}
			})
			put("r1.sandbox", thread.TypeSandbox, func(s thread.Signal) any {
				return thread.SandboxOf{Signal: s, Sandbox: thread.Box{
					Sandbox: thread.Sandbox{Provider: "cloud", Ref: "b1"},
				}}
			})
			put("r1.end.0", thread.TypeStatus, func(s thread.Signal) any {
				return thread.StatusChanged{Signal: s, Status: thread.StatusCompleted}
			})
			l := launch.Launcher{
				Provider: oneBox{tt.labels}, Client: healthy(t, server),
				Boxes: func(string) *client.Client { return leases.Client() },
			}
			_, err := l.Launch(t.Context(), launch.Task{
				Thread: "t1", Run: "r2", Prompt: "go on", Harness: "pi", Resume: true,
			})
			if err == nil || errors.Is(err, launch.ErrRow) != tt.has {
				t.Errorf("the launch returned %v", err)
			}
			if held := len(leases.Entries()) > 0; held == tt.has {
				t.Errorf("held on the stream: %v", held)
			}
			entries := server.Entries()
			last := string(entries[len(entries)-1].Payload)
			if strings.Contains(last, `"status":"failed"`) == tt.has {
				t.Errorf("the thread ends with %s", last)
			}
			if tt.has && len(entries) != 3 {
				t.Errorf("it was refused, and the thread has %s", thread.Marshal(entries))
			}
		})
	}
}

// stayer is a live box, which notes for how long it has to stay.
type stayer struct {
	sandbox.Sandbox
	oneBox
	stays *time.Duration
}

func (s stayer) Open(context.Context, string) (sandbox.Sandbox, error) { return s, nil }
func (s stayer) Ref() sandbox.Ref                                      { return room{}.Ref() }
func (s stayer) WorkDir() string                                       { return "/work" }

func (s stayer) Outlast(_ context.Context, d time.Duration) error {
	*s.stays = d
	return nil
}

func (s stayer) Exec(context.Context, sandbox.Command) (sandbox.Result, error) {
	return sandbox.Result{}, errors.New("no commands")
}

// A box of a shorter run, in which the thread is resumed, stays for the longer one.
func TestFormerBoxStays(t *testing.T) {
	var stays time.Duration
	server, leases := fakethread.New(t, nil), fakethread.New(t, nil)
	signal := thread.Signal{Type: thread.TypeSandbox, RunID: "r1", Harness: "pi"}
	made := thread.Box{Sandbox: thread.Sandbox{Provider: "cloud", Ref: "b1"}}
	server.Put(thread.Entry{ID: "r1.sandbox", TS: "2026-01-01T00:00:00.000Z", Payload: thread.Marshal(
		thread.SandboxOf{Signal: signal, Sandbox: made})})
	signal.Type = thread.TypeStatus
	server.Put(thread.Entry{ID: "r1.end.0", TS: "2026-01-01T00:00:00.000Z", Payload: thread.Marshal(
		thread.StatusChanged{Signal: signal, Status: thread.StatusCompleted})})
	l := launch.Launcher{
		Provider: stayer{oneBox: oneBox{map[string]string{sandbox.LabelThread: "t1"}}, stays: &stays}, Client: healthy(t, server),
		Boxes: func(string) *client.Client { return leases.Client() },
	}
	_, err := l.Launch(t.Context(), launch.Task{
		Thread: "t1", Run: "r2", Prompt: "go on", Harness: "pi", Resume: true,
	})
	if stays != 72*time.Hour+30*time.Minute {
		t.Errorf("the box stays for %v; %v", stays, err)
	}
}

// noBox is a provider whose boxes are another host's.
type noBox struct{ oneBox }

func (noBox) Probe(context.Context, string) (sandbox.Health, string, error) {
	return sandbox.Gone, "", sandbox.ErrForeign
}

// A resume in a new box reports what the former one had, and this launch does not bring.
func TestFormerBoxHad(t *testing.T) {
	for _, tt := range []struct {
		name string
		task launch.Task
		want string
	}{
		{
			"nothing is brought",
			launch.Task{},
			"a repository (--repo, --branch), a file (--file), 2 setup commands (--setup)",
		},
		{
			"some of it", launch.Task{
				Box: sandbox.Options{Repo: "o/r"}, Setup: launch.Setup{Commands: []string{"make"}},
			}, "a file (--file)",
		},
		{
			"all", launch.Task{
				Make: launch.Make{
					Repositories: []launch.Repository{{Path: "r"}}, Setup: []recipe.Command{{Run: "make"}},
				},
				Files: []launch.File{{Path: "~/f"}},
			}, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := fakethread.New(t, nil)
			put := func(id string, payload any) {
				server.Put(thread.Entry{ID: id, TS: "2026-01-01T00:00:00.000Z", Payload: thread.Marshal(payload)})
			}
			signal := func(run, typ string) thread.Signal {
				return thread.Signal{Type: typ, RunID: run, Harness: "pi"}
			}
			step := func(n, kind, err string) {
				s := thread.SetupStep{Signal: signal("r1", thread.SetupType(kind)), Name: "x", Error: err}
				put("r1.setup."+n, s)
			}
			for _, run := range []string{"r1", "r2"} { // both in one box
				put(run+".running", thread.StatusChanged{
					Signal: signal(run, thread.TypeStatus), Status: thread.StatusRunning,
				})
				put(run+".sandbox", thread.SandboxOf{
					Signal:  signal(run, thread.TypeSandbox),
					Sandbox: thread.Box{Sandbox: thread.Sandbox{Provider: "cloud", Ref: "b1"}},
				})
				if run == "r1" {
					step("0", thread.StepRepository, "")
					step("1", thread.StepFile, "")
					step("2", thread.StepCommand, "")
					step("3", thread.StepCommand, "")
					step("4", thread.StepFolder, "not copied")
					step("5", thread.StepAgent, "")
				}
				put(run+".end.0", thread.StatusChanged{
					Signal: signal(run, thread.TypeStatus), Status: thread.StatusCompleted,
				})
			}
			var steps []string
			l := launch.Launcher{
				Provider: noBox{}, Client: healthy(t, server), Progress: func(s string) { steps = append(steps, s) },
			}
			task := tt.task
			task.Thread, task.Run, task.Prompt, task.Harness, task.Resume = "t1", "r3", "go on", "pi", true
			if _, err := l.Launch(t.Context(), task); err == nil {
				t.Error("a box was made")
			}
			got := ""
			for _, s := range steps {
				if _, what, is := strings.Cut(s, "the new sandbox lacks what the former one had: "); is {
					got = what
				}
			}
			if got != tt.want {
				t.Errorf("lacks %q, want %q, in %q", got, tt.want, steps)
			}
		})
	}
}

// A launch whose run is on the thread although the answer was lost posts that it has failed.
func TestLostBeginning(t *testing.T) {
	for name, applied := range map[string]bool{"on the thread": true, "not on the thread": false} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cut := errors.New("the line was cut")
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				for _, e := range c.Entries {
					if e.ID == "r1.running" {
						cancel(cut)
						return fakethread.Fault{Drop: true, Applied: applied}
					}
				}
				return fakethread.Fault{}
			})
			l := launch.Launcher{Provider: oneBox{}, Client: healthy(t, server)}
			_, err := l.Launch(ctx, launch.Task{Thread: "t1", Run: "r1", Prompt: "do it", Harness: "pi"})
			if err == nil || !strings.Contains(err.Error(), "begin the run") {
				t.Errorf("the launch returned %v", err)
			}
			all := string(thread.Marshal(server.Entries()))
			if strings.Contains(all, `"status":"failed"`) != applied {
				t.Errorf("the thread has %s", all)
			}
		})
	}
}
