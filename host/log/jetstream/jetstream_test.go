package jetstream_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/internal/test/enginetest"
	"arbe.0sk.ar/runner/internal/test/natsserver"
)

// start runs a server in this process, until the test's end.
func start(t testing.TB, change func(*server.Options)) *server.Server {
	t.Helper()
	opts := natsserver.Options(t.TempDir())
	if change != nil {
		change(opts)
	}
	s := enginetest.Must(natsserver.Run(opts))(t)
	t.Cleanup(func() { natsserver.Stop(s) })
	return s
}

func configOf(t testing.TB, s *server.Server) jetstream.Config {
	return jetstream.Config{URL: s.ClientURL(), Shards: 2, Replicas: 1, AllowUnsafe: true, Logger: enginetest.Logger(t)}
}

func open(t testing.TB, config jetstream.Config) *jetstream.Engine {
	t.Helper()
	e := enginetest.Must(jetstream.Open(t.Context(), config))(t)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// admin is an administrator's client.
func admin(t testing.TB, s *server.Server) natsjs.JetStream {
	t.Helper()
	conn := enginetest.Must(nats.Connect(s.ClientURL(), nats.Timeout(time.Minute)))(t)
	t.Cleanup(conn.Close)
	return enginetest.Must(natsjs.New(conn))(t)
}

// TestTwoEngines uses the same streams from two engines. Each reads what the other wrote, whatever it has cached.
func TestTwoEngines(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	config := configOf(t, s)
	a, b := open(t, config), open(t, config)
	for round := range 3 {
		for i := range 3 {
			key := fmt.Sprint(round, ".", i)
			enginetest.Add(t, a, "s", key)
			h := enginetest.Head(t, b, "s")
			if _, ok := enginetest.Lookup(t, b, "s", key); !ok {
				t.Errorf("the other engine lacks %s", key)
			}
			set := engine.Append{After: h.Last, Values: map[string][]byte{"v": []byte(key)}}
			h2 := enginetest.Must(b.Append(t.Context(), "s", set))(t)
			if _, err := a.Append(t.Context(), "s", engine.Append{After: h.Last}); !errors.Is(err, engine.ErrConflict) {
				t.Errorf("got %v", err)
			}
			if got := enginetest.Head(t, a, "s"); got.Last != h2.Last {
				t.Errorf("head %+v, want %+v", got, h2)
			}
			if v := enginetest.Must(a.Values(t.Context(), "s", ""))(t); string(v["v"]) != key {
				t.Errorf("values %q", v)
			}
		}
		if err := a.Delete(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if round == 1 { // the other does not see the stream deleted
			enginetest.Add(t, a, "s", "again")
		}
		h := enginetest.Head(t, b, "s")
		if _, ok := enginetest.Lookup(t, b, "s", fmt.Sprint(round, ".0")); ok || h.Exists() != (round == 1) {
			t.Errorf("round %d: the old key is known: %v, at %+v", round, ok, h)
		}
		if v := enginetest.Must(b.Values(t.Context(), "s", ""))(t); len(v) != 0 {
			t.Errorf("round %d: values %q", round, v)
		}
	}
	// The last append that b has seen is removed before b reads keys.
	h := enginetest.Add(t, a, "t", "k")
	if got := enginetest.Head(t, b, "t"); got.Last != h.Last {
		t.Errorf("head %+v, want %+v", got, h)
	}
	enginetest.Add(t, a, "t", "l")
	if err := a.Remove(t.Context(), "t", []uint64{h.Last}); err != nil {
		t.Fatal(err)
	}
	if r, ok := enginetest.Lookup(t, b, "t", "k"); !ok || r.Seq != h.Last || r.Data != nil {
		t.Errorf("got %v, %+v", ok, r)
	}
}

func TestEviction(t *testing.T) {
	t.Parallel()
	e := open(t, configOf(t, start(t, nil)))
	e.KeepAtMost(100)
	for range 2 {
		for i := range 40 {
			name := fmt.Sprint("s", i)
			for j := range 3 {
				if _, err := enginetest.Persist(t.Context(), e, name, fmt.Sprint(j)); err != nil {
					t.Fatal(err)
				}
			}
			if e.Kept() > 100 {
				t.Fatalf("%d keys are kept", e.Kept())
			}
		}
	}
	for i := range 40 {
		if got := enginetest.ReadAll(t, e, fmt.Sprint("s", i), 1000); len(got) != 3 {
			t.Errorf("stream %d: %d records", i, len(got))
		}
	}
}

// TestBatches makes more concurrent appends of several messages than a server accepts at once.
func TestBatches(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *server.Options) { o.MaxPayload = 16 << 10 })
	config := configOf(t, s)
	config.Shards = 1
	e := open(t, config)
	large := strings.Repeat("x", 30_000)
	var all sync.WaitGroup
	for w := range 56 {
		all.Go(func() {
			if _, err := enginetest.Persist(t.Context(), e, fmt.Sprint("s", w%28),
				fmt.Sprintf("%d %s", w, large)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for w := range 28 {
		if got := enginetest.ReadAll(t, e, fmt.Sprint("s", w), 1000); len(got) != 2 || len(got[0].Data) < len(large) ||
			len(got[1].Data) < len(large) {
			t.Errorf("stream %d: %d records", w, len(got))
		}
	}
	h := enginetest.Head(t, e, "s1")
	_, err := e.Append(t.Context(), "s1", enginetest.One(h.Last, "", make([]byte, 17<<20)))
	if err == nil || !strings.Contains(err.Error(), "1000 at once") {
		t.Errorf("got %v", err)
	}
	if _, err := e.Append(t.Context(), "s1", engine.Append{After: h.Last, State: make([]byte, 16<<10)}); err == nil {
		t.Error("a state as large as a message has room")
	}
	enginetest.Add(t, e, "s1", "small")

	s = start(t, func(o *server.Options) { o.MaxPayload = 4 << 10 })
	if _, err := jetstream.Open(t.Context(), configOf(t, s)); err == nil ||
		!strings.Contains(err.Error(), "max_payload") {
		t.Errorf("got %v", err)
	}
}

// TestDoubt loses the request or the answer of an append. The append happens once, and returns what happened.
func TestDoubt(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 3 << 20} {
		for _, tt := range []struct {
			name  string
			loss  loss
			after bool // another append follows before its writer can read the stream
		}{
			{"answer", loseAnswer, false},
			{"answer, others append", loseAnswer, true},
			{"request", loseRequest, false},
			{"request, others append", loseRequest, true},
		} {
			t.Run(fmt.Sprint(tt.name, "/", size), func(t *testing.T) {
				t.Parallel()
				s := start(t, nil)
				p := startProxy(t, s)
				config := configOf(t, s)
				other := open(t, config)
				config.URL = p.url()
				e := open(t, config)
				h := enginetest.Add(t, e, "s", "first")
				p.lose(tt.loss, "Nats-Expected-Last-Subject-Sequence")
				if size > 1<<20 {
					p.lose(tt.loss, "Nats-Batch-Commit")
				}
				type result struct {
					head engine.Head
					err  error
				}
				done := make(chan result)
				go func() {
					h, err := e.Append(t.Context(), "s", enginetest.One(h.Last, "k", bytes.Repeat([]byte("x"), size)))
					done <- result{h, err}
				}()
				<-p.lost
				want := h
				if tt.loss == loseAnswer {
					enginetest.Until(t, func() bool {
						want = enginetest.Head(t, other, "s")
						return want.Last > h.Last
					})
				}
				if tt.after {
					enginetest.Add(t, other, "s", "other")
				}
				p.open()
				got := <-done
				wantErr := tt.after && tt.loss == loseRequest
				if errors.Is(got.err, engine.ErrConflict) != wantErr || !wantErr && got.err != nil ||
					tt.loss == loseAnswer && got.head.Last != want.Last {
					t.Errorf("got %+v, %v, want %+v", got.head, got.err, want)
				}
				count := 2
				if tt.after && !wantErr {
					count = 3
				}
				if rs := enginetest.ReadAll(t, other, "s", 1000); len(rs) != count {
					t.Errorf("%d records, want %d", len(rs), count)
				}
				if _, ok := enginetest.Lookup(t, e, "s", "k"); ok == wantErr {
					t.Errorf("its key is known: %v", ok)
				}
				enginetest.Add(t, e, "s", "more")
			})
		}
	}
}
