package exec_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Find gives the box of a thread's newest run, which is live, or the reason.
func TestFind(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		health sandbox.Health
		has    bool
		want   string // of the error
	}{
		{"live", sandbox.Live, true, ""},
		{"gone", sandbox.Gone, true, `has the box cloud:b1, and its provider answers "its state"`},
		{"unknown", sandbox.Unknown, true, `its provider answers "its state"`},
		{"none", sandbox.Live, false, "has no box"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			m.health = tt.health
			h, s := newHost(t, m)
			if tt.has {
				s.Put(thread.Entry{
					ID: "r1.sandbox", TS: "2026-01-01T00:00:00.000Z", Payload: thread.Marshal(thread.SandboxOf{
						Signal:  thread.Signal{Type: thread.TypeSandbox, RunID: "r1", Harness: "pi"},
						Sandbox: thread.Box{Sandbox: thread.Sandbox{Provider: "cloud", Ref: "b1"}},
					}),
				})
			}
			ref, _, err := boxesOf(h, m).Find(t.Context())
			var none *exec.NoBoxError
			switch {
			case tt.want == "" && (err != nil || ref != m.Ref()):
				t.Errorf("got %v, %v", ref, err)
			case tt.want != "" && (!errors.As(err, &none) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v", err)
			}
		})
	}
}

// A command runs in a box that the host has named and made for the thread, whatever a runner names.
func TestFindTrusts(t *testing.T) {
	t.Parallel()
	in := &thread.Sandbox{Provider: "cloud", Ref: "b1"}
	signal := func(typ string) thread.Signal { return thread.Signal{Type: typ, RunID: "r1", Harness: "pi"} }
	named := thread.SandboxOf{Signal: signal(thread.TypeSandbox), Sandbox: thread.Box{Sandbox: *in}}
	started := thread.Started{Signal: signal(thread.TypeStarted), Sandbox: in}
	for _, tt := range []struct {
		name, id string
		payload  any
		label    string
		want     string // of the error
	}{
		{"its own", "r1.sandbox", named, "t1", ""},
		{"another thread's", "r1.sandbox", named, "t2", "names the box cloud:b1, which was not made for it"},
		{"nobody's", "r1.sandbox", named, "", "which was not made for it"},
		{"the runner's word", "r1.started", started, "t1", "has no box"},
		{"a line's id", "pi:s:1", started, "t1", "has no box"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			h, s := newHost(t, m)
			s.Put(thread.Entry{ID: tt.id, TS: "2026-01-01T00:00:00.000Z", Payload: thread.Marshal(tt.payload)})
			b := boxesOf(h, m)
			b.Labels = func(context.Context, sandbox.Ref) (map[string]string, error) {
				return map[string]string{sandbox.LabelThread: tt.label}, nil
			}
			_, _, err := b.Find(t.Context())
			var none *exec.NoBoxError
			if (err == nil) != (tt.want == "") || err != nil &&
				(!errors.As(err, &none) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			_, _, err = b.Box(t.Context(), exec.Posted{Request: exec.Request{Thread: "t1"}})
			if (err == nil) != (tt.want == "") {
				t.Errorf("opened: %v", err)
			}
		})
	}
}

// boxesOf are the boxes of a host's thread.
func boxesOf(h *exec.Host, m *machine) exec.Boxes {
	return exec.Boxes{
		Client: h.Client, Lease: h.Lease, Provider: func(string) (exec.Provider, error) { return m, nil },
	}
}

// madeRows are the rows of a thread whose box has to be made.
type madeRows struct {
	resolve.Rows
	m     *machine
	mu    sync.Mutex
	calls []string
	late  error // of Ready
}

func (r *madeRows) note(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

func (r *madeRows) Obtain(ctx context.Context, o rows.BoxOrder) (rows.BoxTurn, error) {
	if o.Claim || o.Environment != "e1" || o.Hold.TTL != lease.TTL {
		return rows.BoxTurn{}, errors.New("another order")
	}
	row := rows.Box{ID: "s1", House: "h1", Environment: "e1", Provider: "cloud", Status: rows.BoxPending}
	return rows.BoxTurn{Row: row, Make: true}, r.m.Hold(ctx, o.Hold)
}

func (r *madeRows) Renew(_ context.Context, _, _, ref string) error { return nil }

func (r *madeRows) Ready(_ context.Context, row, _, ref string) error {
	r.note("ready " + row + " " + ref)
	return r.late
}

func (r *madeRows) GiveUp(_ context.Context, row, _ string) (rows.Box, bool, error) {
	r.note("give up " + row)
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	clear(r.m.holds)
	return rows.Box{ID: row, Status: rows.BoxDead}, true, nil
}

func (r *madeRows) Gone(_ context.Context, row string) error { r.note("gone " + row); return nil }
func (r *madeRows) Lease(string) lease.Lease                 { return r.m }

// cloud makes a machine.
type cloud struct {
	*machine
	rows   *madeRows
	labels map[string]string
	fails  error
}

func (c *cloud) Name() string { return "cloud" }

func (c *cloud) Create(_ context.Context, o sandbox.Options) (sandbox.Sandbox, error) {
	c.labels = o.Labels
	return c.machine, c.fails
}

func (c *cloud) Destroy(_ context.Context, id string) error { c.rows.note("destroy " + id); return nil }

func (c *cloud) List(context.Context, map[string]string) ([]sandbox.Box, error) { return nil, nil }

func (c *cloud) Runs(context.Context, string, sandbox.Process) (bool, error) { return false, nil }

// A box is made for a command as for a launch, with its steps on the thread, and held until the command holds it. What
// fails leaves no machine, no live row and no hold.
func TestRowed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		set   func(*cloud, *launch.Task)
		calls string
		kinds string
		err   string
	}{
		{"made", func(*cloud, *launch.Task) {}, "ready s1 b1", "box command", ""},
		{
			"no machine", func(c *cloud, _ *launch.Task) { c.fails = errors.New("no room") },
			"give up s1, gone s1", "box", "no room",
		},
		{
			"no secret", func(_ *cloud, task *launch.Task) {
				task.Secrets = func(context.Context) (map[string]string, error) {
					return nil, errors.New("it is missing")
				}
			},
			"", "", "read the secrets: it is missing",
		},
		{
			"too slow", func(c *cloud, _ *launch.Task) { c.rows.late = lease.ErrReleased },
			"ready s1 b1, give up s1, destroy b1, gone s1", "box command", "took too long",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			h, s := newHost(t, m)
			h.Client = healthy(t, s)
			rows := &madeRows{m: m}
			c := &cloud{machine: m, rows: rows}
			task := launch.Task{Environment: "e1", Make: launch.Make{Setup: []recipe.Command{{Run: "make"}}}}
			tt.set(c, &task)
			h.Box = exec.Rowed{Task: task, Launcher: &launch.Launcher{
				Provider: c, Client: h.Client,
				Rows: &resolve.Resolver{
					Rows: rows, Provider: c, Client: func(string) *client.Client { return h.Client },
				},
			}}.Box
			_, err := h.Fire(t.Context(), post(t, h))
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v", err)
			}
			if got := strings.Join(rows.calls, ", "); got != tt.calls {
				t.Errorf("rows: %s, want %s", got, tt.calls)
			}
			var kinds []string
			for _, e := range s.Entries() {
				sig, _ := thread.Scan(e.Payload)
				if kind, is := strings.CutPrefix(sig.Type, "signal.setup."); is {
					kinds = append(kinds, kind)
					if sig.RunID != "" || !strings.HasPrefix(e.ID, "c1.setup.") || e.AuthorID != "me" {
						t.Errorf("step %s %s", e.ID, e.Payload)
					}
				}
			}
			if got := strings.Join(kinds, " "); got != tt.kinds {
				t.Errorf("steps %s, want %s", got, tt.kinds)
			}
			want := []string{"exec:t1/c1"}
			if end, is := endOf(t, s); is != (tt.err != "") || !strings.Contains(end.Error, tt.err) {
				t.Errorf("the end is %+v, %v", end, is)
			} else if is {
				want = nil
			} else if c.labels[sandbox.LabelRow] != "s1" || c.labels[sandbox.LabelRun] != "" {
				t.Errorf("labels %v", c.labels)
			}
			if held := m.held(); !slices.Equal(held, want) {
				t.Errorf("held by %q", held)
			}
		})
	}
}

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
