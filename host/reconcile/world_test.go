package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// world is a thread server whose clock can be set ahead, and boxes.
type world struct {
	*boxes
	t     testing.TB
	url   string
	ahead atomic.Int64 // the server's clock before ours
	key   []byte
	own   string // the installation's id
	index *index.Index
	reads atomic.Int64 // of threads, from their start
	whole atomic.Int64 // of these, for entries of every type
	sent  atomic.Int64 // bytes of all answers
	log   *log.Log
	late  map[string]bool // threads whose newest entries are 20 s old, whatever the clock is
}

func newWorld(t testing.TB) *world {
	t.Helper()
	streams, err := daemon.OpenLog(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t:    t,
		late: map[string]bool{},
		key:  []byte(strings.Repeat("k", 32)),
		boxes: &boxes{
			health: map[string]sandbox.Health{},
			runs:   map[string]bool{},
			labels: map[string]map[string]string{},
			states: map[string]string{},
		},
	}
	x, err := index.Open(t.TempDir(), "", streams, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.index, w.log = x, streams
	s := &server.Server{
		Log:      streams,
		Secrets:  [][]byte{w.key},
		LongPoll: time.Second,
		Closing:  context.Background(),
		Logger:   slog.New(slog.DiscardHandler),
	}
	handler := s.Handler()
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Date", time.Now().Add(time.Duration(w.ahead.Load())).UTC().Format(http.TimeFormat))
		if r.Method == http.MethodGet && r.URL.Query().Get("offset") == "0" {
			w.reads.Add(1)
			if q := r.URL.Query(); q.Get("types") == "" && q.Get("limit") != "1" &&
				!strings.Contains(r.URL.Path, "_box_") {
				w.whole.Add(1)
			}
		}
		handler.ServeHTTP(counted{rw, &w.sent}, r)
	}))
	t.Cleanup(func() {
		srv.Close()
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if err := streams.Close(); err != nil {
			t.Error(err)
		}
	})
	w.url = srv.URL
	cl, _ := w.client("t")
	h, err := cl.Health(t.Context())
	if err != nil || h.Installation == "" {
		t.Fatalf("health %+v, %v", h, err)
	}
	w.own = h.Installation
	return w
}

// counted counts the bytes of answers.
type counted struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	c.sent.Add(int64(len(b)))
	return c.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (c counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (w *world) client(id string) (*client.Client, error) {
	token := func() (string, error) {
		return token.Sign(
			w.key,
			token.Grant{
				Stream: thread.StreamName(id), Scope: []string{token.ScopeWrite},
				Until: time.Now().Add(time.Hour),
			},
		)
	}
	return &client.Client{Base: thread.BaseURL(w.url), Thread: id, Token: token}, nil
}

func (w *world) reconciler() *reconcile.Reconciler {
	return &reconcile.Reconciler{
		Client:    w.client,
		Providers: map[string]reconcile.Provider{"boxes": w.boxes},
		Again:     time.Millisecond,
		Known:     w.known,
	}
}

// known returns the index's row of a thread, as a reconciler beside its server gets it.
func (w *world) known(ctx context.Context, id string) (reconcile.Known, bool) {
	f, err := w.index.Fold(ctx, id)
	now := time.Now().Add(time.Duration(w.ahead.Load()))
	if w.late[id] {
		now = time.Now().Add(20 * time.Second)
	}
	return reconcile.Known{Fold: f.Fold, Reactions: f.Reactions, Next: f.Next, Now: now}, err == nil
}

// post posts entries, each "id payload", and fails the test where that can't be.
func (w *world) post(id string, entries ...string) {
	w.t.Helper()
	cl, _ := w.client(id)
	var all []thread.Entry
	for _, e := range entries {
		name, payload, _ := strings.Cut(e, " ")
		all = append(all, thread.Entry{ID: name, TS: "2026-01-01T00:00:00.000Z", Payload: []byte(payload)})
	}
	if _, err := cl.Append(w.t.Context(), all); err != nil {
		w.t.Fatal(err)
	}
}

// stored returns an entry of a thread.
func (w *world) stored(id, entry string) (found thread.Entry) {
	w.t.Helper()
	cl, _ := w.client(id)
	_, err := cl.Read(w.t.Context(), "0", false, func(e thread.Entry) error {
		if e.ID == entry {
			found = e
		}
		return nil
	})
	if err != nil || found.ID == "" {
		w.t.Fatalf("%s is not on %s: %v", entry, id, err)
	}
	return found
}

// entries are a thread's, "id payload".
func (w *world) entries(id string) (all []string) {
	w.t.Helper()
	cl, _ := w.client(id)
	if _, err := cl.Read(w.t.Context(), "0", false, func(e thread.Entry) error {
		all = append(all, e.ID+" "+string(e.Payload))
		return nil
	}); err != nil && !client.NotFound(err) {
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

const waitingEntry = `r1.waiting.0 {"type":"signal.dispatch.pi_waiting","runId":"r1","harness":"pi","turn":1}`

func gone(w *world) { w.health["b1"] = sandbox.Gone }

func (w *world) label(thread, ephemeral string) map[string]string {
	return map[string]string{
		sandbox.LabelThread:       thread,
		sandbox.LabelEphemeral:    ephemeral,
		sandbox.LabelInstallation: w.own,
	}
}
