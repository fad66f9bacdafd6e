package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// BenchmarkReconcile makes the passes of a server's reconciler over 10,000 threads of ten entries, 100 of which are
// open, with the index of its threads and without. The first pass is that of a server that has begun. The passes after
// it are four, one of which lists all threads.
func BenchmarkReconcile(b *testing.B) {
	const threads, open = 10_000, 100
	w := newWorld(b)
	var all sync.WaitGroup
	for g := range 32 {
		all.Go(func() {
			for i := g; i < threads; i += 32 {
				box := fmt.Sprint("b", i)
				texts := []string{running, inBox(box, true, "")}
				for k := range 7 {
					texts = append(texts, fmt.Sprintf(`pi:s:%d {"type":"pi.tool_result","message":{"text":%q}}`,
						k, strings.Repeat("x", 1000)))
				}
				if i >= open {
					texts = append(texts, completed)
				}
				var entries []thread.Entry
				for _, e := range texts {
					id, payload, _ := strings.Cut(e, " ")
					entries = append(entries, thread.Entry{
						ID: id, TS: "2026-01-01T00:00:00.000Z", Payload: []byte(payload),
					})
				}
				id := fmt.Sprint("t", i)
				if _, err := w.log.Append(context.Background(), id, entries); err != nil {
					b.Error(err)
				}
				if _, err := w.index.Fold(context.Background(), id); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	for i := range threads {
		if w.runs[fmt.Sprint("b", i)] = i < open; i >= open {
			w.health[fmt.Sprint("b", i)] = sandbox.Gone
		}
	}
	for _, name := range []string{"read", "index"} {
		b.Run(name, func(b *testing.B) {
			r := w.reconciler()
			if name == "read" {
				r.Known = nil
			}
			for range b.N {
				ctx, stop := context.WithCancel(context.Background())
				lists, began, sent := 0, time.Now(), w.sent.Load()
				err := r.Loop(ctx, time.Millisecond, func(f func(string, uint64) error) error {
					switch lists++; lists {
					case 2, 3:
						what := []string{"first-pass", "next-4-passes"}[lists-2]
						b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-"+what)
						b.ReportMetric(float64(w.sent.Load()-sent)/1e6, "MB-"+what)
						began, sent = time.Now(), w.sent.Load()
					}
					if lists == 3 {
						stop()
						return nil
					}
					return w.index.Versions(f)
				}, func(string, reconcile.State) {})
				stop()
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
