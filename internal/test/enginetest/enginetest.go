// Package enginetest holds the tests that both engines of the log pass. Each engine's own tests call Suite and Large.
package enginetest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
)

// Now is the time of receipt of records.
var Now = time.UnixMilli(1_800_000_000_000)

// Start makes an empty store and returns a function that opens it. That function may be called again once the engine
// that it returned is closed.
type Start func(t testing.TB) (open func() (log.Engine, error))

// Suite runs every common test, each on a store of its own that start makes.
func Suite(t *testing.T, start Start) {
	s := suite{start}
	t.Run("AppendAndRead", s.appendAndRead)
	t.Run("Conflict", s.conflict)
	t.Run("Race", s.race)
	t.Run("Control", s.control)
	t.Run("ReadByBytes", s.readByBytes)
	t.Run("ReadBack", s.readBack)
	t.Run("Lookup", s.lookup)
	t.Run("Values", s.values)
	t.Run("State", s.state)
	t.Run("Remove", s.remove)
	t.Run("Delete", s.delete)
	t.Run("Retire", s.retire)
	t.Run("Names", s.names)
	t.Run("Streams", s.streams)
	t.Run("WatchEnds", s.watchEnds)
	t.Run("ManyStreams", s.manyStreams)
	t.Run("Cancelled", s.cancelled)
	t.Run("Goroutines", s.goroutines)
}

// Large tests appends of up to 32 MiB.
func Large(t *testing.T, start Start) { suite{start}.large(t) }

type suite struct{ start Start }

// watcher is an engine that others append to as well.
type watcher interface {
	Watch(ctx context.Context, f func(stream string)) error
}

// once runs a test on an engine that is opened once.
func (s suite) once(t *testing.T, f func(t *testing.T, e log.Engine)) {
	s.reopening(t, func(t *testing.T, open func() log.Engine) { f(t, open()) })
}

// reopening runs a test that opens the engine more than once: open closes the engine that it returned before.
func (s suite) reopening(t *testing.T, f func(t *testing.T, open func() log.Engine)) {
	open := s.start(t)
	var last log.Engine
	shut := func() {
		if last != nil {
			if err := last.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(shut)
	f(t, func() log.Engine {
		shut()
		var err error
		if last, err = open(); err != nil {
			last = nil
			t.Fatal(err)
		}
		return last
	})
}

// Head returns the stream's head.
func Head(t *testing.T, e engine.Engine, stream string) engine.Head {
	t.Helper()
	return Must(e.Head(t.Context(), stream))(t)
}

// One is an append of one record.
func One(after uint64, key string, data []byte) engine.Append {
	return engine.Append{After: after, Records: []engine.Record{{At: Now, Key: key, Data: data}}}
}

// Add appends one record after the stream's head. Its key is its text.
func Add(t *testing.T, e engine.Engine, stream, text string) engine.Head {
	t.Helper()
	h := Head(t, e, stream)
	a := One(h.Last, text, []byte(text))
	a.State = h.State
	return Must(e.Append(t.Context(), stream, a))(t)
}

// Persist appends one record while others append as well. Its key is the text's first word.
func Persist(ctx context.Context, e engine.Engine, stream, text string) (engine.Head, error) {
	key, _, _ := strings.Cut(text, " ")
	for {
		h, err := e.Head(ctx, stream)
		if err != nil {
			return h, err
		}
		r, ok, err := e.Lookup(ctx, stream, key)
		if err != nil || ok {
			return engine.Head{Last: r.Seq}, err
		}
		h, err = e.Append(ctx, stream, One(h.Last, key, []byte(text)))
		if !errors.Is(err, engine.ErrConflict) {
			return h, err
		}
	}
}

// ReadAll reads a stream to its head, most bytes at a time, and checks the contract of Read.
func ReadAll(t *testing.T, e engine.Engine, stream string, most int) []engine.Record {
	t.Helper()
	h := Head(t, e, stream)
	var all []engine.Record
	for after := uint64(0); ; {
		rs := Must(e.Read(t.Context(), stream, after, h.Last, most))(t)
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

// Lookup returns the record with this key.
func Lookup(t *testing.T, e engine.Engine, stream, key string) (engine.Record, bool) {
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

// Texts returns the data of records.
func Texts(rs []engine.Record) []string {
	var all []string
	for _, r := range rs {
		all = append(all, string(r.Data))
	}
	return all
}

// Must fails the test if the call has failed.
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Until waits for a condition, for at most 5 min: longer than a busy machine takes for any.
func Until(t testing.TB, is func() bool) {
	t.Helper()
	limit := time.After(5 * time.Minute)
	for tick := time.NewTicker(10 * time.Millisecond); !is(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("the condition did not come true")
		}
	}
}

// Logger writes to the test's log while the test runs.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Logf("%s", bytes.TrimSpace(b))
	}
	return len(b), nil
}
