package reconcile_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// boxes is a provider whose boxes are what the test sets.
type boxes struct {
	mu     sync.Mutex
	health map[string]sandbox.Health
	runs   map[string]bool // whether the runner is alive, where the box is asked
	broken error           // of every question
	hang   bool            // no question is answered
	labels map[string]map[string]string
	states map[string]string
	gone   []string // those that were released
	opened []string
	probes atomic.Int64
	lists  atomic.Int64
	most   atomic.Int64 // questions at the same time
	now    atomic.Int64
	asked  func(id string) // while a question is on its way
}

func (b *boxes) Open(_ context.Context, id string) (sandbox.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened = append(b.opened, id)
	return &box{id: id}, nil
}

func (b *boxes) Probe(ctx context.Context, id string) (sandbox.Health, string, error) {
	b.probes.Add(1)
	b.most.Store(max(b.most.Load(), b.now.Add(1)))
	defer b.now.Add(-1)
	if b.asked != nil {
		b.asked(id)
	}
	if b.hang {
		<-ctx.Done()
		return sandbox.Unknown, "", context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.health[id], cmp.Or(b.states[id], "started"), b.broken
}

func (b *boxes) Runs(_ context.Context, id string, _ sandbox.Process) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs[id], b.broken
}

func (b *boxes) Destroy(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = append(b.gone, id)
	delete(b.labels, id)
	return nil
}

func (b *boxes) List(ctx context.Context, labels map[string]string) (all []sandbox.Box, err error) {
	b.lists.Add(1)
	if b.hang {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, has := range b.labels {
		fits := true
		for k, v := range labels {
			fits = fits && has[k] == v
		}
		if fits {
			one := sandbox.Box{
				Ref: sandbox.Ref{
					Provider: "boxes",
					ID:       id,
				}, Labels: has, State: cmp.Or(b.states[id], "started"), Health: sandbox.Live, Created: time.Now(),
			}
			if one.State == "error" {
				one.Health = sandbox.Gone
			}
			all = append(all, one)
		}
	}
	return all, b.broken
}

// box is one of them.
type box struct {
	sandbox.Sandbox
	id string
}

// world is a thread server whose clock can be set ahead, and boxes.
type world struct {
	*boxes
	t     *testing.T
	url   string
	ahead atomic.Int64 // the server's clock before ours
	key   []byte
	own   string // the installation's id
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log, err := stream.OpenLog(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t:   t,
		key: []byte(strings.Repeat("k", 32)),
		boxes: &boxes{
			health: map[string]sandbox.Health{},
			runs:   map[string]bool{},
			labels: map[string]map[string]string{},
			states: map[string]string{},
		},
	}
	s := &stream.Server{
		Log:      log,
		Secrets:  [][]byte{w.key},
		LongPoll: time.Second,
		Closing:  t.Context(),
		Logger:   slog.New(slog.DiscardHandler),
	}
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
	client, _ := w.client("t")
	h, err := client.Health(t.Context())
	if err != nil || h.Installation == "" {
		t.Fatalf("health %+v, %v", h, err)
	}
	w.own = h.Installation
	return w
}

func (w *world) client(id string) (*thread.Client, error) {
	token := func() (string, error) {
		return stream.Mint(
			w.key,
			stream.Grant{Thread: id, Scope: []string{stream.ScopeWrite}, Until: time.Now().Add(time.Hour)},
		)
	}
	return &thread.Client{Base: thread.BaseURL(w.url), Thread: id, Token: token}, nil
}

func (w *world) reconciler() *reconcile.Reconciler {
	return &reconcile.Reconciler{
		Client:    w.client,
		Providers: map[string]reconcile.Provider{"boxes": w.boxes},
		Again:     time.Millisecond,
	}
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
	return fmt.Sprintf(
		`r1.sandbox {"type":"signal.dispatch.sandbox","runId":"r1","harness":"pi","sandbox":{"provider":"boxes","ref":"%s","ephemeral":%v}%s}`,
		id,
		ephemeral,
		parent,
	)
}

const startedEntry = `r1.started {"type":"signal.dispatch.session_started","runId":"r1","harness":"pi","pid":7,"startTicks":9,"bootId":"b"}`

// A run is given up on evidence only, and once.
func TestSettle(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []string
		ahead   time.Duration
		set     func(*world)
		did     string // what was done
		status  string
		open    bool
		fails   bool
	}{
		{"no runs", []string{`c1 {"type":"chat","text":"hi"}`}, time.Hour, nil, "", "idle", false, false},
		{"a live box", []string{running, inBox("b1", true, "")}, 20 * time.Minute, nil, "", "running", true, false},
		{"gone", []string{running, inBox("b1", true, "")}, 3 * time.Minute, gone, "orphaned box_gone", "failed", false, false},
		{"gone, and heard of a moment ago", []string{running, inBox("b1", true, "")}, 90 * time.Second, gone, "", "running", true, false},
		{"gone, and the list has it", []string{running, inBox("b1", true, "")}, 3 * time.Minute, func(w *world) {
			gone(w)
			w.labels["b1"] = w.label("t1", "true")
		}, "", "running", true, true},
		{"gone once, and there again", []string{running, inBox("b1", true, "")}, 3 * time.Minute, func(w *world) {
			gone(w)
			w.asked = func(string) {
				if w.probes.Load() == 2 {
					w.health["b1"] = sandbox.Live
				}
			}
		}, "", "running", true, false},
		{"its process is gone", []string{running, inBox("b1", true, ""), startedEntry}, 35 * time.Second, nil, "orphaned runner_lost: process 7", "failed", false, false},
		{"its process is gone, and heard of a moment ago", []string{running, inBox("b1", true, ""), startedEntry}, 25 * time.Second, nil, "", "running", true, false},
		{"silent, and its process is alive", []string{running, inBox("b1", true, ""), startedEntry}, time.Hour, func(w *world) { w.runs["b1"] = true }, "", "running", true, false},
		{"nobody knows of the box", []string{running, inBox("b1", true, "")}, 29 * time.Minute, func(w *world) { w.health["b1"] = sandbox.Unknown }, "", "running", true, false},
		{"the provider is down", []string{running, inBox("b1", true, "")}, 29 * time.Minute, func(w *world) { w.broken = errors.New("no answer") }, "", "running", true, true},
		{"the provider is down, and it is silent", []string{running, inBox("b1", true, "")}, 2 * time.Hour, func(w *world) { w.broken = errors.New("no answer") }, "orphaned silent", "failed", true, true},
		{"silent without a box", []string{running}, time.Hour, nil, "orphaned silent", "failed", false, false},
		{"not silent for long", []string{running}, 29 * time.Minute, nil, "", "running", true, false},
		{"somebody else's box", []string{running, strings.Replace(inBox("b1", true, ""), `"boxes"`, `"others"`, 1)}, 29 * time.Minute, gone, "", "running", true, false},
		{"ended well", []string{running, inBox("b1", false, ""), answer, completed}, time.Hour, gone, "", "completed", false, false},
		{"runs without an id", []string{
			`s1 {"type":"signal.thread.status_changed","status":"running"}`, `s2 {"type":"signal.thread.status_changed","status":"failed"}`,
			`s3 {"type":"signal.thread.status_changed","status":"running"}`,
		}, time.Hour, nil, "orphaned silent", "failed", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.health["b1"] = sandbox.Live
			if tt.set != nil {
				tt.set(w)
			}
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

func gone(w *world) { w.health["b1"] = sandbox.Gone }

func (w *world) label(thread, ephemeral string) map[string]string {
	return map[string]string{
		sandbox.LabelThread:       thread,
		sandbox.LabelEphemeral:    ephemeral,
		sandbox.LabelInstallation: w.own,
	}
}

// An outage of the server is no silence of the runs: it counts from when the log could be written again.
func TestOutageOrphansNobody(t *testing.T) {
	w := newWorld(t)
	w.health["b1"] = sandbox.Unknown
	w.post("t1", running, inBox("b1", true, ""))
	client, _ := w.client("t1")
	down := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			since := time.Now().Add(time.Duration(w.ahead.Load()) - time.Second).UTC().Format(time.RFC3339Nano)
			fmt.Fprintf(rw, `{"installation":%q,"writableSince":%q}`, w.own, since)
			return
		}
		r.URL.Host, r.URL.Scheme, r.RequestURI = strings.TrimPrefix(w.url, "http://"), "http", ""
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		for k, v := range resp.Header {
			rw.Header()[k] = v
		}
		rw.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(rw, resp.Body)
	}))
	defer down.Close()
	w.ahead.Store(int64(5 * time.Hour))
	r := w.reconciler()
	r.Client = func(id string) (*thread.Client, error) {
		c, err := w.client(id)
		c.Base = thread.BaseURL(down.URL)
		return c, err
	}
	s, err := r.Thread(t.Context(), client.Thread)
	if err != nil || s.Status != "running" || !s.Open || len(s.Deeds) > 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}

// What the host posts is provisional, and an end that comes while the provider is asked is the end.
func TestLateRunner(t *testing.T) {
	w := newWorld(t)
	w.health["b1"] = sandbox.Gone
	w.post("t1", running, inBox("b1", true, ""))
	w.post("t2", running, inBox("b2", true, ""))
	w.ahead.Store(int64(3 * time.Minute))
	if s, err := w.reconciler().Thread(t.Context(), "t1"); err != nil || s.Status != "failed" {
		t.Fatalf("got %+v, %v", s, err)
	}
	w.post("t1", completed)
	if s, err := w.reconciler().Thread(t.Context(), "t1"); err != nil || s.Status != "completed" || len(s.Deeds) > 0 {
		t.Errorf("got %+v, %v", s, err)
	}

	w.health["b2"] = sandbox.Gone
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

// A parent gets a run's end once, however many look.
func TestNotify(t *testing.T) {
	w := newWorld(t)
	w.post("t1", running, inBox("b1", false, "parent"), answer, completed)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := w.reconciler().Thread(t.Context(), "t1"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	entries := w.entries("parent")
	if len(entries) != 2 ||
		!strings.Contains(entries[0], `"childThreadId":"t1","status":"completed","text":"It is done."`) ||
		!strings.Contains(entries[1], `"type":"chat","text":"The task on thread t1 has completed.\n\nIt is done."`) {
		t.Errorf("the parent got %v", entries)
	}
}

// The parent of a launch that failed before it had a box is in its running entry.
func TestNotifyFailedLaunch(t *testing.T) {
	w := newWorld(t)
	w.post(
		"t1",
		strings.Replace(running, `"running"}`, `"running","parent":{"threadId":"parent"}}`, 1),
		`r1.orphan.0 {"type":"signal.thread.pi_failed","runId":"r1","harness":"pi","errorClass":"launch","message":"no such image","exitCode":null,"signal":null}`,
		`r1.orphan.1 {"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"failed"}`,
	)
	w.ahead.Store(int64(11 * time.Minute))
	if s, err := w.reconciler().Thread(t.Context(), "t1"); err != nil || len(s.Deeds) != 1 ||
		s.Deeds[0].Did != reconcile.Notified {
		t.Errorf("got %+v, %v", s, err)
	}
	if entries := w.entries("parent"); len(entries) != 2 ||
		!strings.Contains(entries[1], "has failed.\\n\\nno such image") {
		t.Errorf("the parent got %v", entries)
	}
}

// A provisional end is delivered when it has stood for ten minutes, and corrected, once, where the runner's own
// replaces it.
func TestNotifyCorrects(t *testing.T) {
	w := newWorld(t)
	w.health["b1"] = sandbox.Gone
	w.post("t1", running, inBox("b1", false, "parent"), answer)
	did := func(ahead time.Duration) (all []string) {
		t.Helper()
		w.ahead.Store(int64(ahead))
		s, err := w.reconciler().Thread(t.Context(), "t1")
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range s.Deeds {
			all = append(all, d.Did)
		}
		return all
	}
	if got := did(3 * time.Minute); len(got) != 1 || got[0] != reconcile.Orphaned {
		t.Errorf("at first: %v", got)
	}
	if got := did(9 * time.Minute); len(got) > 0 || len(w.entries("parent")) > 0 {
		t.Errorf("too early: %v", got)
	}
	if got := did(14 * time.Minute); len(got) != 1 || got[0] != reconcile.Notified {
		t.Errorf("when it stands: %v", got)
	}
	w.post("t1", completed)
	if got := did(15 * time.Minute); len(got) != 1 || got[0] != reconcile.Corrected {
		t.Errorf("when the runner is back: %v", got)
	}
	if got := did(16 * time.Minute); len(got) > 0 {
		t.Errorf("again: %v", got)
	}
	entries := w.entries("parent")
	if len(entries) != 4 || !strings.HasPrefix(entries[2], "t1.r1.finished.corrected ") ||
		!strings.Contains(entries[2], `"status":"completed"`) ||
		!strings.Contains(entries[2], `"corrected":true`) ||
		!strings.HasPrefix(entries[3], "t1.r1.result.corrected ") {
		t.Errorf("the parent got %v", entries)
	}
}

// A hundred open runs are one pass with one list, a few questions at a time; and a loop looks again only at what has
// changed or is open.
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
	w.ahead.Store(int64(3 * time.Minute))
	versions["idle"] = 1
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	passes := 0
	err := w.reconciler().Loop(ctx, time.Millisecond, func(f func(string, uint64) error) error {
		if passes++; passes == 3 {
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
	}, func(string, reconcile.State) {})
	if err != nil || w.probes.Load() != 200 || w.most.Load() > 8 || w.lists.Load() > 12 {
		t.Errorf("%v; asked %d times, %d at once, %d lists", err, w.probes.Load(), w.most.Load(), w.lists.Load())
	}
	if s, err := w.reconciler().Thread(t.Context(), "t42"); err != nil || s.Status != "failed" {
		t.Errorf("got %+v, %v", s, err)
	}
}

// A provider that hangs holds up nobody but the threads with boxes of its own.
func TestHangingProvider(t *testing.T) {
	w := newWorld(t)
	other := &boxes{health: map[string]sandbox.Health{}, hang: true}
	w.health["b1"] = sandbox.Gone
	ids := []string{"good"}
	for i := range 40 {
		id := fmt.Sprintf("t%d", i)
		ids = append(ids, id)
		w.post(id, running, strings.Replace(inBox("x", true, ""), `"boxes"`, `"others"`, 1))
	}
	w.post("good", running, inBox("b1", true, ""))
	w.ahead.Store(int64(3 * time.Minute))
	r := w.reconciler()
	r.Providers["others"] = other
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- r.All(ctx, ids, func(string, reconcile.State) {}) }()
	for len(w.entries("good")) < 4 { // until it is given up, while the others wait for their list
		if t.Context().Err() != nil {
			t.Fatal("the thread with another provider is not settled")
		}
	}
	stop()
	if err := <-over; err == nil || other.lists.Load() > 1 || other.probes.Load() > 8 {
		t.Errorf("%v; %d lists, %d questions", err, other.lists.Load(), other.probes.Load())
	}
}
