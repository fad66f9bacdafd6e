package store_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/stream/store"
)

// now is when records are received.
var now = time.UnixMilli(1_800_000_000_000)

// engines are what the suite runs on. start makes an empty place to keep streams in, and returns what opens it, which can be done again once it is closed.
var engines = []struct {
	name  string
	start func(t testing.TB) func() (store.Engine, error)
}{
	{"pebble", func(t testing.TB) func() (store.Engine, error) {
		dir, log := t.TempDir(), logger(t)
		return func() (store.Engine, error) { return store.OpenPebble(dir, log) }
	}},
	{"nats", func(t testing.TB) func() (store.Engine, error) {
		config := natsConfig(t, startNATS(t, nil))
		return func() (store.Engine, error) { return store.OpenNATS(t.Context(), config) }
	}},
}

// each runs a test on every engine.
func each(t *testing.T, f func(t *testing.T, e store.Engine)) {
	eachTwice(t, func(t *testing.T, open func() store.Engine) { f(t, open()) })
}

// eachTwice is each for tests that open the engine more than once: whatever is open is closed before.
func eachTwice(t *testing.T, f func(t *testing.T, open func() store.Engine)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			open := e.start(t)
			var last store.Engine
			shut := func() {
				if last != nil {
					if err := last.Close(); err != nil {
						t.Error(err)
					}
				}
			}
			t.Cleanup(shut)
			f(t, func() store.Engine {
				shut()
				var err error
				if last, err = open(); err != nil {
					last = nil
					t.Fatal(err)
				}
				return last
			})
		})
	}
}

func head(t *testing.T, e store.Engine, stream string) store.Head {
	t.Helper()
	return must(e.Head(t.Context(), stream))(t)
}

// add appends one record, keyed by its text, wherever the stream stands.
func add(t *testing.T, e store.Engine, stream, text string) store.Head {
	t.Helper()
	h := head(t, e, stream)
	return must(e.Append(t.Context(), stream, store.Append{After: h.Last, Records: []store.Record{{At: now, Key: text, Data: []byte(text)}}, State: h.State}))(t)
}

// persist appends one record against others who do so, too. Its key is the text's first word.
func persist(ctx context.Context, e store.Engine, stream, text string) (store.Head, error) {
	key, _, _ := strings.Cut(text, " ")
	for {
		h, err := e.Head(ctx, stream)
		if err != nil {
			return h, err
		}
		r, ok, err := e.Lookup(ctx, stream, key)
		if err != nil || ok {
			return store.Head{Last: r.Seq}, err
		}
		h, err = e.Append(ctx, stream, store.Append{After: h.Last, Records: []store.Record{{At: now, Key: key, Data: []byte(text)}}})
		if !errors.Is(err, store.ErrConflict) {
			return h, err
		}
	}
}

// readAll reads a stream to its head, by so many bytes at a time, and sees that it does so by the rules.
func readAll(t *testing.T, e store.Engine, stream string, most int) []store.Record {
	t.Helper()
	h := head(t, e, stream)
	var all []store.Record
	for after := uint64(0); ; {
		rs := must(e.Read(t.Context(), stream, after, h.Last, most))(t)
		if len(rs) == 0 {
			if after < h.Data {
				t.Errorf("the read after %d of %d is empty", after, h.Data)
			}
			return all
		}
		for _, r := range rs {
			if r.Seq < after {
				t.Fatalf("seq %d after %d", r.Seq, after)
			}
			after = r.Seq
		}
		all = append(all, rs...)
	}
}

func lookup(t *testing.T, e store.Engine, stream, key string) (store.Record, bool) {
	t.Helper()
	r, ok, err := e.Lookup(t.Context(), stream, key)
	if err != nil {
		t.Fatal(err)
	}
	if ok && r.Key != key {
		t.Errorf("looked for %q and got %q", key, r.Key)
	}
	return r, ok
}

func texts(rs []store.Record) []string {
	var all []string
	for _, r := range rs {
		all = append(all, string(r.Data))
	}
	return all
}

// must makes a call's error the test's.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// until waits for a condition.
func until(t testing.TB, is func() bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for tick := time.NewTicker(10 * time.Millisecond); !is(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("waited in vain")
		}
	}
}

// logger writes to the test's log, for as long as the test runs.
func logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Logf("%s", bytes.TrimSpace(b))
	}
	return len(b), nil
}
