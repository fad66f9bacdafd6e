package resolve_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// world is a provider with one machine, and the rows of a thread.
type world struct {
	resolve.Rows

	turns  []rows.BoxTurn // that Obtain returns, one after the other; the last one from then on
	mu     sync.Mutex     // guards calls: a maker's renewals are a goroutine
	calls  []string
	health sandbox.Health
	healed bool           // after the first look
	listed sandbox.Health // in the provider's list; Unknown: it is not there
	label  string         // of the machine
	holds  []rows.Hold    // of others
	fails  error          // of Renew and Ready
	left   rows.BoxStatus // of the row once it is given up; "": dead
	others bool           // another call makes the box
	noted  error          // of Noted
}

func (w *world) note(call string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, call)
}

func (w *world) Obtain(_ context.Context, o rows.BoxOrder) (rows.BoxTurn, error) {
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

func (w *world) GiveUp(_ context.Context, row, maker string) (rows.Box, bool, error) {
	if w.note("give up " + row); !strings.HasPrefix(maker, wanted.Hold.Holder+"#") {
		return rows.Box{}, false, errors.New("no maker of this test: " + maker)
	}
	return rows.Box{ID: row, Status: cmp.Or(w.left, rows.BoxDead)}, !w.others, nil
}

func (w *world) Noted(_ context.Context, n rows.Notice) error {
	w.note("noted " + n.Row + " " + n.Thread)
	return w.noted
}

func (w *world) Row(_ context.Context, row string) (rows.BoxState, bool, error) {
	return rows.BoxState{ID: row, Ref: "m1"}, true, nil
}

func (w *world) Condemn(_ context.Context, row string, _ []rows.Hold, _ []string) (bool, error) {
	w.note("condemn " + row)
	return true, nil
}

func (w *world) Gone(_ context.Context, row string) error     { w.note("gone " + row); return nil }
func (w *world) Doubt(_ context.Context, row, _ string) error { w.note("doubt " + row); return nil }
func (w *world) Lease(string) lease.Lease                     { return held{w} }

// client returns a client of a thread whose server takes all that is posted.
func (w *world) client(id string) *client.Client {
	return &client.Client{
		Base: "http://threads.test/api/stream", Thread: id, Token: client.StaticToken("t"),
		HTTP: &http.Client{Transport: posts{w}},
	}
}

// posts notes what is posted. No thread has an entry.
type posts struct{ *world }

func (p posts) RoundTrip(req *http.Request) (*http.Response, error) {
	status, answer := http.StatusOK, "{}"
	switch {
	case req.Method == http.MethodPost:
		answer = `{"nextOffset":"1","appended":1,"duplicates":0}`
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(body), thread.TypeSandboxReleased) {
			p.note("report " + req.URL.Path[strings.LastIndex(req.URL.Path, "-")+1:])
		}
	case req.URL.Path != "/healthz":
		status, answer = http.StatusNotFound, `{"error":{"code":"not_found","message":"none"}}`
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
		Body: io.NopCloser(strings.NewReader(answer)),
	}, nil
}

// held is a lease whose holds are dropped only.
type held struct{ *world }

func (h held) Read(context.Context) (lease.State, error) {
	return lease.State{Holds: h.holds, Now: time.Now()}, nil
}

func (h held) Hold(context.Context, rows.Hold) error                          { return nil }
func (h held) Try(context.Context, rows.Hold) (bool, error)                   { return true, nil }
func (h held) Drop(_ context.Context, holder string) error                    { h.note("drop " + holder); return nil }
func (h held) Release(context.Context, string, func(lease.State) error) error { return nil }

// provider is the world as a provider.
type provider struct{ *world }

func (p provider) Name() string { return "cloud" }

func (p provider) List(_ context.Context, labels map[string]string) ([]sandbox.Box, error) {
	if labels[sandbox.LabelRow] != p.label {
		return nil, nil
	}
	return []sandbox.Box{{Ref: sandbox.Ref{Provider: "cloud", ID: "m1"}, Health: p.listed, State: "listed"}}, nil
}

func (p provider) Probe(context.Context, string) (sandbox.Health, string, error) {
	was := p.health
	if p.healed {
		p.world.health = sandbox.Live
	}
	return was, "its state", nil
}

func (p provider) Runs(context.Context, string, sandbox.Process) (bool, error) { return false, nil }

func (p provider) Open(_ context.Context, id string) (sandbox.Sandbox, error) {
	return machine{id: id}, nil
}

func (p provider) Destroy(_ context.Context, id string) error { p.note("destroy " + id); return nil }

type machine struct {
	sandbox.Sandbox
	id string
}

func (m machine) Ref() sandbox.Ref { return sandbox.Ref{Provider: "cloud", ID: m.id} }

func row(id string, s rows.BoxStatus) rows.Box {
	return rows.Box{ID: id, Provider: "cloud", Ref: "m1", Status: s}
}

var wanted = rows.BoxOrder{Thread: "t1", Hold: lease.OfRun("t1", "r1"), Claim: true}

func TestBox(t *testing.T) {
	live, pending := rows.BoxTurn{Row: row("b1", rows.BoxLive)}, rows.BoxTurn{Row: row("b1", rows.BoxPending)}
	made := rows.BoxTurn{Row: row("b2", rows.BoxPending), Make: true}
	other, otherMade := live, made
	other.Row.Provider, otherMade.Row.Provider = "local", "local"
	for _, tt := range []struct {
		name  string
		world *world
		calls string
		row   string
		opens bool
		err   string
	}{
		{"live", &world{turns: []rows.BoxTurn{live}, health: sandbox.Live, label: "b1"}, "obtain claim", "b1", true, ""},
		{
			"gone",
			&world{turns: []rows.BoxTurn{live, made}, health: sandbox.Gone},
			"obtain claim, condemn b1, gone b1, obtain", "b2", false, "",
		},
		{
			"gone once",
			&world{turns: []rows.BoxTurn{live}, health: sandbox.Gone, healed: true, label: "b1"},
			"obtain claim, obtain", "b1", true, "",
		},
		{
			"gone, and listed",
			&world{turns: []rows.BoxTurn{live}, health: sandbox.Gone, label: "b1", listed: sandbox.Live},
			"obtain claim, doubt b1, drop run:t1/r1", "", false, "its state, and the provider's list has it as listed",
		},
		{
			"gone, and held",
			&world{turns: []rows.BoxTurn{live}, health: sandbox.Gone, holds: []rows.Hold{{
				Holder: "attached:h/7/x", ThreadID: "t2", RunID: "r2", TTL: lease.TTL,
				At: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC),
			}}},
			"obtain claim, doubt b1, drop run:t1/r1", "", false,
			"held by arbe run on h (process 7) for run r2 of thread t2 until 2200-01-01T00:10:00.000Z",
		},
		{ // who opens it will find out, too
			"gone, and opened by another",
			&world{turns: []rows.BoxTurn{live, made}, health: sandbox.Gone, holds: []rows.Hold{lease.Opening("t2")}},
			"obtain claim, condemn b1, gone b1, obtain", "b2", false, "",
		},
		{
			"faulty",
			&world{turns: []rows.BoxTurn{live, made}, health: sandbox.Gone, label: "b1", listed: sandbox.Gone},
			"obtain claim, condemn b1, obtain", "b2", false, "",
		},
		{"unknown", &world{turns: []rows.BoxTurn{live}}, "obtain claim, drop run:t1/r1", "", false, "its state"},
		{
			"another row's machine",
			&world{turns: []rows.BoxTurn{live}, health: sandbox.Live, label: "b9"},
			"obtain claim, doubt b1, drop run:t1/r1", "", false, "lists none with the label arbe.sandbox=b1",
		},
		{
			"made by another launch",
			&world{turns: []rows.BoxTurn{pending, pending, live}, health: sandbox.Live, label: "b1"},
			"obtain claim, obtain, obtain", "b1", true, "",
		},
		{
			"that dies",
			&world{turns: []rows.BoxTurn{pending, made}},
			"obtain claim, obtain", "b2", false, "",
		},
		{
			"of another provider",
			&world{turns: []rows.BoxTurn{other}}, "obtain claim, drop run:t1/r1", "", false, "local",
		},
		{
			"to be made by another provider",
			&world{turns: []rows.BoxTurn{otherMade}}, "obtain claim, give up b2", "", false, "local",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := tt.world
				r := resolve.Resolver{Rows: w, Provider: provider{w}, Client: w.client}
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
		w := world{turns: []rows.BoxTurn{{Row: row("b1", rows.BoxPending)}}}
		r := resolve.Resolver{Rows: &w, Provider: provider{&w}}
		began := time.Now()
		if _, err := r.Box(t.Context(), wanted); !errors.Is(err, resolve.ErrSlow) {
			t.Errorf("got %v", err)
		}
		if last := w.calls[len(w.calls)-1]; last != "drop run:t1/r1" {
			t.Errorf("it held the box to the end: %s", last)
		}
		if waited := time.Since(began); waited < 15*time.Minute || waited > 16*time.Minute {
			t.Errorf("it waited %v", waited)
		}
	})
}

func readyAndFail(b *resolve.Box, ctx context.Context) error {
	return errors.Join(b.Ready(ctx), b.Fail(ctx))
}

// A maker renews its row until the box is live; one that gives up leaves neither row nor machine.
func TestMake(t *testing.T) {
	for name, tt := range map[string]struct {
		world *world
		end   func(*resolve.Box, context.Context) error
		calls []string
	}{
		"ready": {&world{}, (*resolve.Box).Ready, []string{"ready b1 m1"}},
		"fail":  {&world{}, (*resolve.Box).Fail, []string{"give up b1", "report t1", "destroy m1", "gone b1"}},
		"fail once it is live": { // others may run in it
			&world{}, readyAndFail, []string{"ready b1 m1", "drop run:t1/r1"},
		},
		"fail after the answer of Ready is lost": {
			&world{fails: errors.New("away"), left: rows.BoxLive}, readyAndFail,
			[]string{"ready b1 m1", "give up b1", "drop run:t1/r1"},
		},
		"fail after it took too long": {
			&world{fails: lease.ErrReleased}, readyAndFail, []string{"ready b1 m1", "give up b1", "report t1", "destroy m1", "gone b1"},
		},
		"fail while another call makes it": {
			&world{fails: lease.ErrReleased, others: true}, readyAndFail,
			[]string{"ready b1 m1", "give up b1", "report t1", "destroy m1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := tt.world
				w.turns = []rows.BoxTurn{{Row: row("b1", rows.BoxPending), Make: true}}
				r := resolve.Resolver{Rows: w, Provider: provider{w}, Client: w.client}
				b, err := r.Box(t.Context(), wanted)
				if err != nil {
					t.Fatal(err)
				}
				if b.Labels()[sandbox.LabelRow] != "b1" {
					t.Errorf("labels: %v", b.Labels())
				}
				time.Sleep(2*rows.MakeTimeout/5 + time.Second) // while the machine is made
				err = errors.Join(b.Made(t.Context(), machine{id: "m1"}), tt.end(b, t.Context()))
				if !errors.Is(err, w.fails) {
					t.Fatal(err)
				}
				time.Sleep(rows.MakeTimeout)
				want := append([]string{"obtain", "claim", "renew b1 ", "renew b1 ", "renew b1 m1"}, tt.calls...)
				if !slices.Equal(w.calls, want) {
					t.Errorf("calls: %q", w.calls)
				}
			})
		})
	}
}

// The threads of a dead box get one signal of the new one, also where the first caller could not post it or note it.
func TestResumed(t *testing.T) {
	server := fakethread.New(t, nil)
	turn := rows.BoxTurn{Row: row("b2", rows.BoxLive), Notices: []rows.Notice{{Thread: "t1", Row: "b2", From: "b1"}}}
	w := &world{turns: []rows.BoxTurn{turn}, health: sandbox.Live, label: "b2", noted: errors.New("away")}
	away := server.Client()
	away.Token = func() (string, error) { return "", errors.New("no token") }
	for _, cl := range []*client.Client{away, server.Client(), server.Client()} {
		r := resolve.Resolver{Rows: w, Provider: provider{w}, Client: func(string) *client.Client { return cl }}
		if _, err := r.Box(t.Context(), wanted); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"obtain", "claim", "obtain", "claim", "noted b2 t1", "obtain", "claim", "noted b2 t1"}
	if !slices.Equal(w.calls, want) {
		t.Errorf("calls: %q", w.calls)
	}
	entries := server.Entries()
	if len(entries) != 1 || entries[0].ID != "sandbox.b2.resumed" ||
		string(entries[0].Payload) != `{"type":"signal.thread.sandbox_resumed","sandbox":"b2","from":"b1"}` {
		t.Errorf("on the thread: %s", thread.Marshal(entries))
	}
}
