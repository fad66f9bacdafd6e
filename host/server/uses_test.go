package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// fullEngine is an engine whose disk may be full.
type fullEngine struct {
	log.Engine
	full atomic.Bool
}

func (e *fullEngine) Append(ctx context.Context, stream string, a engine.Append) (engine.Head, error) {
	if e.full.Load() {
		return engine.Head{}, engine.ErrFull
	}
	return e.Engine.Append(ctx, stream, a)
}

// On a full disk streams with a TTL are read, those that are read do not expire, and those that have expired are gone.
func TestReadsWhileFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, readsWhileFull)
}

func readsWhileFull(t *testing.T) {
	p, err := pebble.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	e := &fullEngine{Engine: p}
	s := &Server{
		Log:      log.New(e),
		Insecure: true,
		LongPoll: 20 * time.Millisecond,
		Logger:   slog.New(slog.DiscardHandler),
	}
	t.Cleanup(func() {
		if err := s.Log.Close(); err != nil {
			t.Error(err)
		}
	})
	h := s.handler()
	ask := func(method, target string, header ...string) int {
		r := httptest.NewRequest(method, "http://localhost/v1/stream/"+target, strings.NewReader("x"))
		r.Header.Set("Content-Type", "text/plain")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	soon := time.Now().Add(200 * time.Millisecond)
	for name, header := range map[string][2]string{
		"used": {request.HeaderTTL, "5"}, "unused": {request.HeaderTTL, "5"}, "soon": {request.HeaderExpires, soon.Format(time.RFC3339Nano)},
		"ever": {},
	} {
		if got := ask("PUT", name, header[0], header[1]); got != http.StatusCreated {
			t.Fatalf("%s: got %d", name, got)
		}
	}
	began := time.Now()
	e.full.Store(true)
	for time.Since(began) < 5500*time.Millisecond { // of the bubble, and longer than the TTL
		for _, target := range []string{"used?offset=-1", "used?offset=now&live=long-poll", "ever?offset=-1"} {
			if got := ask("GET", target); got != http.StatusOK && got != http.StatusNoContent {
				t.Fatalf("%s, %v after the disk was full: got %d", target, time.Since(began), got)
			}
		}
	}
	for _, name := range []string{"unused", "soon"} {
		if got := ask("GET", name+"?offset=-1"); got != http.StatusNotFound {
			t.Errorf("%s, which has expired: got %d", name, got)
		}
		if got := ask("PUT", name); got != http.StatusInsufficientStorage {
			t.Errorf("%s cannot be made again: got %d", name, got)
		}
	}
	if got := ask("POST", "used"); got != http.StatusInsufficientStorage {
		t.Errorf("an append: got %d", got)
	}
	e.full.Store(false)
	for name, want := range map[string]int{
		"used": http.StatusOK, "unused": http.StatusNotFound,
		"ever": http.StatusOK,
	} {
		if got := ask("GET", name+"?offset=-1"); got != want {
			t.Errorf("%s with room again: got %d, want %d", name, got, want)
		}
	}
	if got := ask("PUT", "soon"); got != http.StatusCreated {
		t.Errorf("made again: got %d", got)
	}
}

// countedEngine counts what is read of it.
type countedEngine struct {
	log.Engine
	reads, values atomic.Int64
}

func (e *countedEngine) Read(
	ctx context.Context,
	stream string,
	after, upTo uint64,
	most int,
) ([]engine.Record, error) {
	e.reads.Add(1)
	return e.Engine.Read(ctx, stream, after, upTo, most)
}

func (e *countedEngine) Values(ctx context.Context, stream, prefix string) (map[string][]byte, error) {
	values, err := e.Engine.Values(ctx, stream, prefix)
	e.values.Add(int64(len(values)))
	return values, err
}

// HEAD reads no entries, and a producer's append reads no other producer's state, whatever they are called.
func TestCostOfRequests(t *testing.T) {
	b := besiege(t)
	e := &countedEngine{Engine: b.Log.Engine()}
	b.Log = log.New(e)
	b.honest("a")
	read := e.reads.Load()
	signed := b.token(token.Grant{Stream: thread.StreamName("honest")})
	for _, path := range []string{"/api/stream/arbe-thread-honest?offset=0", "/v1/stream/arbe-thread-honest"} {
		if status, body := b.ask("HEAD", path, signed, "", ""); status != http.StatusOK || body != "" {
			t.Errorf("HEAD %s: %d %s", path, status, body)
		}
	}
	if got := e.reads.Load(); got != read {
		t.Errorf("HEAD made %d reads", got-read)
	}
	signed = b.token(token.Grant{Stream: "s"})
	if status, body := b.ask("PUT", "/v1/stream/s", signed, "text/plain", ""); status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	for i := range 50 {
		r := httptest.NewRequest("POST", "/v1/stream/s", strings.NewReader("x"))
		for k, v := range map[string]string{
			"Authorization": "Bearer " + signed, "Content-Type": "text/plain",
			request.HeaderProducerID: strings.Repeat("p", 50-i), request.HeaderProducerEpoch: "0",
			request.HeaderProducerSeq: "0",
		} {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		b.handler().ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("producer %d: %d %s", i, w.Code, w.Body)
		}
	}
	if got := e.values.Load(); got != 0 {
		t.Errorf("%d values of others were read", got)
	}
}
