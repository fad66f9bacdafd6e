package resolve_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/sandbox"
)

// world is a provider with one machine, and the rows of a thread.
type world struct {
	resolve.Rows

	turns  []resolve.Turn // that Obtain returns, one after the other; the last one from then on
	mu     sync.Mutex     // guards calls: a maker's renewals are a goroutine
	calls  []string
	health sandbox.Health
	label  string // of the machine
	fails  error  // of Renew
}

func (w *world) note(call string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, call)
}

func (w *world) Obtain(_ context.Context, o resolve.Order) (resolve.Turn, error) {
	if w.note("obtain"); o.Claim {
		w.note("claim")
	}
	t := w.turns[0]
	if len(w.turns) > 1 {
		w.turns = w.turns[1:]
	}
	return t, nil
}

func (w *world) Renew(_ context.Context, row, _, ref string) error {
	w.note("renew " + row + " " + ref)
	return w.fails
}

func (w *world) Ready(_ context.Context, row, _, ref string) error {
	w.note("ready " + row + " " + ref)
	return w.fails
}

func (w *world) Condemn(_ context.Context, row string) error { w.note("condemn " + row); return nil }
func (w *world) Gone(_ context.Context, row string) error    { w.note("gone " + row); return nil }
func (w *world) Lease(string) lease.Lease                    { return held{w} }

// held is a lease whose holds are dropped only.
type held struct{ *world }

func (h held) Read(context.Context) (lease.State, error)                      { return lease.State{}, nil }
func (h held) Hold(context.Context, lease.Hold) error                         { return nil }
func (h held) Try(context.Context, lease.Hold) (bool, error)                  { return true, nil }
func (h held) Drop(_ context.Context, holder string) error                    { h.note("drop " + holder); return nil }
func (h held) Release(context.Context, string, func(lease.State) error) error { return nil }

// provider is the world as a provider.
type provider struct{ *world }

func (p provider) Name() string { return "cloud" }

func (p provider) List(_ context.Context, labels map[string]string) ([]sandbox.Box, error) {
	if labels[sandbox.LabelRow] != p.label {
		return nil, nil
	}
	return []sandbox.Box{{Ref: sandbox.Ref{Provider: "cloud", ID: "m1"}}}, nil
}

func (p provider) Probe(context.Context, string) (sandbox.Health, string, error) {
	return p.health, "its state", nil
}

func (p provider) Open(_ context.Context, id string) (sandbox.Sandbox, error) {
	return machine{id: id}, nil
}

func (p provider) Destroy(_ context.Context, id string) error { p.note("destroy " + id); return nil }

type machine struct {
	sandbox.Sandbox
	id string
}

func (m machine) Ref() sandbox.Ref { return sandbox.Ref{Provider: "cloud", ID: m.id} }

func row(id string, s resolve.Status) resolve.Row {
	return resolve.Row{ID: id, Provider: "cloud", Ref: "m1", Status: s}
}

var wanted = resolve.Order{Thread: "t1", Hold: lease.OfRun("t1", "r1"), Claim: true}

func TestBox(t *testing.T) {
	live, pending := resolve.Turn{Row: row("b1", resolve.Live)}, resolve.Turn{Row: row("b1", resolve.Pending)}
	made := resolve.Turn{Row: row("b2", resolve.Pending), Make: true}
	other := live
	other.Row.Provider = "local"
	for _, tt := range []struct {
		name  string
		world *world
		calls string
		row   string
		opens bool
		err   string
	}{
		{"live", &world{turns: []resolve.Turn{live}, health: sandbox.Live, label: "b1"}, "obtain claim", "b1", true, ""},
		{
			"gone",
			&world{turns: []resolve.Turn{live, made}, health: sandbox.Gone},
			"obtain claim, condemn b1, destroy m1, gone b1, obtain", "b2", false, "",
		},
		{"unknown", &world{turns: []resolve.Turn{live}}, "obtain claim", "", false, "its state"},
		{
			"another row's machine",
			&world{turns: []resolve.Turn{live}, health: sandbox.Live, label: "b9"},
			"obtain claim", "", false, "no label arbe.sandbox=b1",
		},
		{
			"made by another launch",
			&world{turns: []resolve.Turn{pending, pending, live}, health: sandbox.Live, label: "b1"},
			"obtain claim, obtain, obtain", "b1", true, "",
		},
		{
			"that dies",
			&world{turns: []resolve.Turn{pending, made}},
			"obtain claim, obtain", "b2", false, "",
		},
		{"of another provider", &world{turns: []resolve.Turn{other}}, "obtain claim", "", false, "local"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := tt.world
				r := resolve.Resolver{Rows: w, Provider: provider{w}}
				b, err := r.Box(t.Context(), wanted)
				if tt.err != "" {
					if err == nil || !strings.Contains(err.Error(), tt.err) {
						t.Errorf("got %v", err)
					}
				} else if err != nil {
					t.Fatal(err)
				} else if b.Row.ID != tt.row || (b.Sandbox != nil) != tt.opens {
					t.Errorf("got %+v", b)
				}
				if got := strings.ReplaceAll(strings.Join(w.calls, ", "), ", claim", " claim"); got != tt.calls {
					t.Errorf("calls: %s", got)
				}
				if b != nil {
					if err := b.Fail(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// Another launch makes the box for too long.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world{turns: []resolve.Turn{{Row: row("b1", resolve.Pending)}}}
		r := resolve.Resolver{Rows: &w, Provider: provider{&w}}
		began := time.Now()
		if _, err := r.Box(t.Context(), wanted); !errors.Is(err, resolve.ErrSlow) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(began); waited < 15*time.Minute || waited > 16*time.Minute {
			t.Errorf("it waited %v", waited)
		}
	})
}

// A maker renews its row until the box is live; one that gives up leaves neither row nor machine.
func TestMake(t *testing.T) {
	for name, tt := range map[string]struct {
		end   func(*resolve.Box, context.Context) error
		calls []string
	}{
		"ready": {(*resolve.Box).Ready, []string{"ready b1 m1"}},
		"fail":  {(*resolve.Box).Fail, []string{"condemn b1", "destroy m1", "gone b1"}},
		"fail once it is live": { // others may run in it
			func(b *resolve.Box, ctx context.Context) error { return errors.Join(b.Ready(ctx), b.Fail(ctx)) },
			[]string{"ready b1 m1", "drop run:t1/r1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := world{turns: []resolve.Turn{{Row: row("b1", resolve.Pending), Make: true}}}
				r := resolve.Resolver{Rows: &w, Provider: provider{&w}}
				b, err := r.Box(t.Context(), wanted)
				if err != nil {
					t.Fatal(err)
				}
				if b.Labels()[sandbox.LabelRow] != "b1" {
					t.Errorf("labels: %v", b.Labels())
				}
				time.Sleep(2*resolve.Patience/5 + time.Second) // while the machine is made
				if err := errors.Join(b.Made(t.Context(), machine{id: "m1"}), tt.end(b, t.Context())); err != nil {
					t.Fatal(err)
				}
				time.Sleep(resolve.Patience)
				want := append([]string{"obtain", "claim", "renew b1 ", "renew b1 ", "renew b1 m1"}, tt.calls...)
				if !slices.Equal(w.calls, want) {
					t.Errorf("calls: %q", w.calls)
				}
			})
		})
	}
}
