package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/stream"
	"arbe.0sk.ar/runner/thread"
)

// boxes is a provider whose boxes are what the test says.
type boxes struct {
	mu     sync.Mutex
	health map[string]sandbox.Health
	broken error // of every question
	labels map[string]map[string]string
	gone   []string // those that were released
	probes atomic.Int64
	most   atomic.Int64 // questions at the same time
	now    atomic.Int64
	asked  func(id string) // while a question is on its way
}

func (b *boxes) Name() string { return "boxes" }

func (b *boxes) Create(context.Context, sandbox.Options) (sandbox.Sandbox, error) {
	return nil, errors.New("nobody makes boxes here")
}

func (b *boxes) Open(_ context.Context, id string) (sandbox.Sandbox, error) {
	return &box{provider: b, id: id}, nil
}

func (b *boxes) Probe(_ context.Context, id string) (sandbox.Health, string, error) {
	b.probes.Add(1)
	b.most.Store(max(b.most.Load(), b.now.Add(1)))
	defer b.now.Add(-1)
	if b.asked != nil {
		b.asked(id)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.health[id], "as the test says", b.broken
}

func (b *boxes) Destroy(ctx context.Context, id string) error {
	return (&box{provider: b, id: id}).Destroy(ctx)
}

func (b *boxes) List(_ context.Context, labels map[string]string) (all []sandbox.Box, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, has := range b.labels {
		fits := true
		for k, v := range labels {
			fits = fits && has[k] == v
		}
		if fits {
			all = append(all, sandbox.Box{Ref: sandbox.Ref{Provider: "boxes", ID: id}, Labels: has})
		}
	}
	return all, b.broken
}

// box is one of them; only its release is asked for.
type box struct {
	sandbox.Sandbox
	provider *boxes
	id       string
}

func (b *box) Destroy(context.Context) error {
	b.provider.mu.Lock()
	defer b.provider.mu.Unlock()
	b.provider.gone = append(b.provider.gone, b.id)
	delete(b.provider.labels, b.id)
	return nil
}

// world is a thread server whose clock can be set ahead, and boxes.
type world struct {
	*boxes
	t     *testing.T
	url   string
	ahead atomic.Int64 // the server's clock before ours
	key   []byte
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log, err := stream.OpenLog(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, key: []byte(strings.Repeat("k", 32)), boxes: &boxes{health: map[string]sandbox.Health{}, labels: map[string]map[string]string{}}}
	s := &stream.Server{Log: log, Secrets: [][]byte{w.key}, LongPoll: time.Second, Closing: t.Context(), Logger: slog.New(slog.DiscardHandler)}
	handler := s.Handler()
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Date", time.Now().Add(time.Duration(w.ahead.Load())).UTC().Format(http.TimeFormat))
		handler.ServeHTTP(rw, r)
	}))
	t.Cleanup(func() {
		srv.Close()
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	w.url = srv.URL
	return w
}

func (w *world) client(id string) (*thread.Client, error) {
	token := func() (string, error) {
		return stream.Mint(w.key, stream.Grant{Thread: id, Scope: []string{stream.ScopeWrite}, Until: time.Now().Add(time.Hour)})
	}
	return &thread.Client{Base: thread.BaseURL(w.url), Thread: id, Token: token}, nil
}

func (w *world) reconciler() *reconcile.Reconciler {
	return &reconcile.Reconciler{Client: w.client, Providers: map[string]sandbox.Provider{"boxes": w.boxes}}
}

// post posts entries, each "id payload", and fails the test where that can't be.
func (w *world) post(id string, entries ...string) {
	w.t.Helper()
	client, _ := w.client(id)
	var all []thread.Entry
	for _, e := range entries {
		name, payload, _ := strings.Cut(e, " ")
		all = append(all, thread.Entry{ID: name, TS: "2026-01-01T00:00:00.000Z", Payload: []byte(payload)})
	}
	if _, err := client.Append(w.t.Context(), all); err != nil {
		w.t.Fatal(err)
	}
}

// entries are a thread's, "id payload".
func (w *world) entries(id string) (all []string) {
	w.t.Helper()
	client, _ := w.client(id)
	if _, err := client.Read(w.t.Context(), "0", false, func(e thread.Entry) error {
		all = append(all, e.ID+" "+string(e.Payload))
		return nil
	}); err != nil && !thread.NotFound(err) {
		w.t.Fatal(err)
	}
	return all
}

const (
	running   = `r1.running {"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"running"}`
	completed = `r1.end.0 {"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"completed","exitCode":0,"signal":null,"stopReason":"stop","durationMs":1,"lines":1,"digest":"","leftovers":0}`
	answer    = `pi:s:a1 {"type":"pi.assistant","stopReason":"stop","message":{"role":"assistant","content":[{"type":"text","text":"It is done."}]}}`
)

func inBox(id string, ephemeral bool, parent string) string {
	if parent != "" {
		parent = `,"parent":{"threadId":"` + parent + `","authorId":"brain"}`
	}
	return fmt.Sprintf(`r1.sandbox {"type":"signal.dispatch.sandbox","runId":"r1","harness":"pi","sandbox":{"provider":"boxes","ref":"%s","ephemeral":%v}%s}`, id, ephemeral, parent)
}

func TestSettle(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []string
		health  sandbox.Health
		broken  error
		ahead   time.Duration
		did     string // what was done
		status  string
		open    bool
		fails   bool
	}{
		{"no runs", []string{`c1 {"type":"chat","text":"hi"}`}, sandbox.Unknown, nil, 0, "", "idle", false, false},
		{"a live box", []string{running, inBox("b1", true, "")}, sandbox.Live, nil, 0, "", "running", true, false},
		{"the box is gone", []string{running, inBox("b1", true, "")}, sandbox.Gone, nil, 0, "orphaned box_gone: as the test says", "failed", false, false},
		{"nobody knows of the box", []string{running, inBox("b1", true, "")}, sandbox.Unknown, nil, 0, "", "running", true, false},
		{"the provider is down", []string{running, inBox("b1", true, "")}, sandbox.Gone, errors.New("no answer"), 0, "", "running", true, true},
		{"the provider is down, and it is silent", []string{running, inBox("b1", true, "")}, sandbox.Unknown, errors.New("no answer"), time.Hour, "orphaned silent", "failed", false, false},
		{"silent without a box", []string{running}, sandbox.Unknown, nil, time.Hour, "orphaned silent", "failed", false, false},
		{"not silent for long", []string{running}, sandbox.Unknown, nil, 29 * time.Minute, "", "running", true, false},
		{"silent in a live box", []string{running, inBox("b1", true, "")}, sandbox.Live, nil, time.Hour, "orphaned silent", "failed", false, false},
		{"somebody else's box", []string{running, strings.Replace(inBox("b1", true, ""), `"boxes"`, `"others"`, 1)}, sandbox.Gone, nil, 0, "", "running", true, false},
		{"ended well", []string{running, inBox("b1", false, ""), answer, completed}, sandbox.Gone, nil, 0, "", "completed", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.health["b1"], w.broken = tt.health, tt.broken
			w.post("t1", tt.entries...)
			w.ahead.Store(int64(tt.ahead))
			s, err := w.reconciler().Thread(t.Context(), "t1")
			if (err != nil) != tt.fails {
				t.Fatalf("got %v", err)
			}
			did := ""
			for _, d := range s.Deeds {
				did += d.Did + " " + d.Why
			}
			if !strings.HasPrefix(did, tt.did) || tt.did == "" && did != "" || s.Status != tt.status || s.Open != tt.open {
				t.Errorf("got %+v", s)
			}
			// Again, by another one: nothing more.
			before := w.entries("t1")
			if again, err := w.reconciler().Thread(t.Context(), "t1"); len(again.Deeds) > 0 || (err != nil) != tt.fails {
				t.Errorf("again it did %+v, %v", again.Deeds, err)
			}
			if after := w.entries("t1"); len(after) != len(before) {
				t.Errorf("the thread grew by %v", after[len(before):])
			}
		})
	}
}

// What the host says is provisional, and an end that comes while the provider is asked is the end.
func TestLateRunner(t *testing.T) {
	w := newWorld(t)
	w.health["b1"] = sandbox.Gone
	w.post("t1", running, inBox("b1", true, ""))
	if s, err := w.reconciler().Thread(t.Context(), "t1"); err != nil || s.Status != "failed" {
		t.Fatalf("got %+v, %v", s, err)
	}
	w.post("t1", completed)
	if s, err := w.reconciler().Thread(t.Context(), "t1"); err != nil || s.Status != "completed" || len(s.Deeds) > 0 {
		t.Errorf("got %+v, %v", s, err)
	}

	w.health["b2"] = sandbox.Gone
	w.post("t2", running, inBox("b2", true, ""))
	w.asked = func(id string) {
		if id == "b2" {
			w.post("t2", completed)
		}
	}
	if s, err := w.reconciler().Thread(t.Context(), "t2"); err != nil || s.Status != "completed" || len(s.Deeds) > 0 {
		t.Errorf("got %+v, %v", s, err)
	}
	for _, e := range w.entries("t2") {
		if strings.HasPrefix(e, "r1.orphan") {
			t.Errorf("a run that has ended was given up: %s", e)
		}
	}
}

// Who asked for the work is told its end once, however many look.
func TestNotify(t *testing.T) {
	w := newWorld(t)
	w.post("t1", running, inBox("b1", false, "parent"), answer, completed)
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, err := w.reconciler().Thread(t.Context(), "t1"); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	entries := w.entries("parent")
	if len(entries) != 2 || !strings.Contains(entries[0], `"childThreadId":"t1","status":"completed","text":"It is done."`) || !strings.Contains(entries[1], `"type":"chat","text":"The task on thread t1 has completed.\n\nIt is done."`) {
		t.Errorf("the parent was told %v", entries)
	}
}

// A box that is for a run alone goes with it, and no other.
func TestReap(t *testing.T) {
	label := func(thread, ephemeral string) map[string]string {
		return map[string]string{sandbox.LabelThread: thread, sandbox.LabelEphemeral: ephemeral}
	}
	for _, tt := range []struct {
		name    string
		entries []string
		ahead   time.Duration
		gone    string
	}{
		{"ended", []string{running, inBox("b1", true, ""), completed}, 0, "b1"},
		{"open", []string{running, inBox("b1", true, "")}, 0, ""},
		{"to be kept", []string{running, inBox("b1", false, ""), completed}, 0, ""},
		{"a launch that died before it could name it", []string{running}, time.Hour, "b1"},
		{"a launch that may be under way", []string{running}, 0, ""},
		{"silent: it may be alive", []string{running, inBox("b1", true, "")}, time.Hour, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.health["b1"] = sandbox.Live
			w.labels["b1"], w.labels["b2"], w.labels["b3"] = label("t1", "true"), label("t1", ""), label("t2", "true")
			w.post("t1", tt.entries...)
			w.ahead.Store(int64(tt.ahead))
			if _, err := w.reconciler().Thread(t.Context(), "t1"); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(w.gone, " "); got != tt.gone {
				t.Errorf("released %q, want %q", got, tt.gone)
			}
		})
	}
}

// A hundred open runs are one pass, with one question each, a few at a time; and a loop looks again only at what has changed or is open.
func TestLoop(t *testing.T) {
	w := newWorld(t)
	versions := map[string]uint64{}
	for i := range 100 {
		id, ref := fmt.Sprintf("t%d", i), fmt.Sprintf("b%d", i)
		w.health[ref] = sandbox.Gone
		w.post(id, running, inBox(ref, true, ""))
		versions[id] = 2
	}
	w.post("idle", `c1 {"type":"chat","text":"hi"}`)
	versions["idle"] = 1
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	passes := 0
	err := w.reconciler().Loop(ctx, time.Millisecond, func(f func(string, uint64) error) error {
		if passes++; passes == 5 {
			stop()
		}
		for id, version := range versions {
			if passes > 1 && id != "idle" {
				version = 4 // with what was posted
			}
			if err := f(id, version); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || w.probes.Load() != 100 || w.most.Load() > 8 {
		t.Errorf("%v; asked %d times, %d at once", err, w.probes.Load(), w.most.Load())
	}
	if s, err := w.reconciler().Thread(t.Context(), "t42"); err != nil || s.Status != "failed" {
		t.Errorf("got %+v, %v", s, err)
	}
}
