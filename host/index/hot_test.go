package index_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/thread"
)

// reads is an engine that counts reads of records.
type reads struct {
	log.Engine
	n atomic.Int64
}

func (r *reads) Read(
	ctx context.Context, stream string, after, upTo uint64, most int,
) ([]engine.Record, error) {
	r.n.Add(1)
	return r.Engine.Read(ctx, stream, after, upTo, most)
}

// What an append has in hand is not read from the log, once the thread's state is in memory.
func TestAppendsInHand(t *testing.T) {
	counted := &reads{Engine: must(pebble.Open(t.TempDir(), slog.New(slog.DiscardHandler)))(t)}
	w := &world{t: t, log: log.New(counted), dir: t.TempDir()}
	t.Cleanup(func() {
		w.close()
		if err := w.log.Close(); err != nil {
			t.Error(err)
		}
	})
	w.open()
	for _, made := range []bool{false, true} { // by its first entry, or without one
		id := fmt.Sprint("made-", made)
		if made {
			must2(w.log.Create(t.Context(), thread.StreamName(id), log.Want{Type: "application/json"}))(t)
		}
		w.append(id, prompt("r1", "x"), status("r1", "running", "running"))
		must(w.x.Summary(t.Context(), id))(t)
		before := counted.n.Load()
		for i := range 50 {
			w.append(id, output(fmt.Sprint("pi:s:", i)), output(fmt.Sprint("pi:s:", i, "b")))
			if v := must(w.x.Summary(t.Context(), id))(t); v.Lines != int64(2*i+2) {
				t.Fatalf("got %+v", v)
			}
		}
		if n := counted.n.Load() - before; n > 5 { // an append can meet a pass, which holds the state
			t.Errorf("%s: %d reads", id, n)
		}
	}
	w.check()
}

func must2[T, U any](v T, _ U, err error) func(testing.TB) T { return must(v, err) }

// Appends, summaries, passes and deletions at the same time leave an index that is right.
func TestConcurrent(t *testing.T) {
	w := newWorld(t)
	const threads, writers = 3, 4
	var all sync.WaitGroup
	for k := range writers {
		all.Go(func() {
			for i := range 60 {
				id := fmt.Sprint("t", i%threads)
				e := output(fmt.Sprint("pi:", k, ":", i))
				if i%7 == 0 {
					e = signalled("r1", fmt.Sprint("beat.", k, ".", i), thread.TypeHeartbeat, `,"nextMs":5000`)
				}
				_, err := w.log.Append(t.Context(), id, []thread.Entry{e})
				if err != nil && !errors.Is(err, log.ErrGone) {
					t.Error(err) // ErrGone: while it is deleted
				}
				if k == 0 && i%20 == 19 {
					if err := w.log.Delete(t.Context(), thread.StreamName(id)); err != nil {
						t.Error(err)
					}
				}
			}
		})
		all.Go(func() {
			for i := range 40 {
				if _, err := w.x.Summary(t.Context(), fmt.Sprint("t", i%threads)); err != nil {
					continue // the thread is absent for a while
				}
			}
		})
	}
	all.Wait()
	w.check()
}
