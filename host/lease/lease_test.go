package lease_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// newLease is the lease of a box, on a thread server of the test's.
func newLease(t *testing.T) lease.OnStream {
	t.Helper()
	log, err := daemon.OpenLog(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	key := []byte(strings.Repeat("k", 32))
	s := &server.Server{
		Log:      log,
		Secrets:  [][]byte{key},
		LongPoll: time.Second,
		Closing:  t.Context(),
		Logger:   slog.New(slog.DiscardHandler),
	}
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		srv.Close()
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	id := lease.Stream(sandbox.Ref{Provider: "daytona", ID: "b1"})
	token := func() (string, error) {
		return token.Sign(
			key,
			token.Grant{
				Stream: thread.StreamName(id), Scope: []string{token.ScopeWrite},
				Until: time.Now().Add(time.Hour),
			},
		)
	}
	return lease.OnStream{Client: &client.Client{Base: thread.BaseURL(srv.URL), Thread: id, Token: token}}
}

var errNeeded = errors.New("needed")

// unheld lets a box be released that nobody holds; runs are open as long as they hold it.
func unheld(s lease.State) error {
	if _, held := s.Held(func(rows.Hold) bool { return true }); held {
		return errNeeded
	}
	return nil
}

func TestRelease(t *testing.T) {
	l := newLease(t)
	run := lease.OfRun("t1", "r1")
	if err := l.Hold(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if err := l.Hold(t.Context(), run); err != nil {
		t.Fatal("renewed:", err)
	}
	if err := l.Release(t.Context(), "test", unheld); !errors.Is(err, errNeeded) {
		t.Errorf("released under a run: %v", err)
	}
	for range 2 {
		if err := l.Drop(t.Context(), run.Holder); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := l.Release(t.Context(), "test", unheld); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Hold(t.Context(), run); !errors.Is(err, lease.ErrReleased) {
		t.Errorf("held after the release: %v", err)
	}
	if s, err := l.Read(t.Context()); err != nil || !s.Released || len(s.Holds) > 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}

// A hold with a time keeps others out until it has passed, by the server's clock.
func TestTry(t *testing.T) {
	l := newLease(t)
	a, b := rows.Hold{Holder: "a", TTL: lease.TTL}, rows.Hold{Holder: "b", TTL: lease.TTL}
	for _, tt := range []struct {
		h    rows.Hold
		want bool
	}{{a, true}, {b, false}, {a, true}} {
		if got, err := l.Try(t.Context(), tt.h); err != nil || got != tt.want {
			t.Errorf("%s: %v, %v", tt.h.Holder, got, err)
		}
	}
	s, err := l.Read(t.Context())
	if err != nil || len(s.Holds) != 1 {
		t.Fatalf("got %+v, %v", s, err)
	}
	if h := s.Holds[0]; h.Expired(h.At.Add(lease.TTL-time.Second)) || !h.Expired(h.At.Add(lease.TTL)) {
		t.Errorf("expiry of %+v", h)
	}
}

// Of many that hold and release at the same time, either all holds came before the release, or they are refused.
func TestRace(t *testing.T) {
	l := newLease(t)
	var mu sync.Mutex
	held, released := 0, false
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			err := l.Hold(t.Context(), lease.OfRun("t1", fmt.Sprint(i)))
			if err != nil && !errors.Is(err, lease.ErrReleased) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				held++
			}
		})
		wg.Go(func() {
			err := l.Release(t.Context(), fmt.Sprint(i), unheld)
			if err != nil && !errors.Is(err, errNeeded) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			released = released || err == nil
		})
	}
	wg.Wait()
	if released == (held > 0) {
		t.Errorf("released %v, and %d hold it", released, held)
	}
}

func TestStream(t *testing.T) {
	for _, ref := range []sandbox.Ref{{Provider: "local", ID: "0123456789ab-01a1fe57"}, {Provider: "x", ID: strings.Repeat("a", 128)}, {Provider: "x", ID: "a.b"}} {
		if id := lease.Stream(ref); !thread.ValidThread(id) || !strings.HasPrefix(id, "_box_") {
			t.Errorf("%s: %q", ref, id)
		}
	}
}
