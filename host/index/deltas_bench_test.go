package index_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/thread"
)

// BenchmarkDeltas has bots answer on 1,000 threads, while 100 readers watch the list and somebody takes pages of it.
// The figures stand beside those of as many ordinary entries, in the same run.
func BenchmarkDeltas(b *testing.B) {
	const rounds, threads, each, readers = 7, 1000, 20, 100
	l := newLog(b)
	dir := b.TempDir()
	x, err := index.Open(dir, "i1", l, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	l.Changed = x.Changed
	stop := run(b, x)
	defer stop()
	var watching []*index.Reader
	for range readers {
		watching = append(watching, x.Watch())
	}
	size := func() float64 {
		info, err := os.Stat(filepath.Join(dir, "threads.0"))
		if err != nil {
			b.Fatal(err)
		}
		return float64(info.Size())
	}
	n := 0
	kinds := map[string]func(i int) thread.Entry{
		"delta": func(i int) thread.Entry { return delta("piet", i) },
		"entry": func(i int) thread.Entry { return output(fmt.Sprint("pi:s:", i)) },
	}
	// appends returns the changes of all readers, the bytes that were stored, and how long each page took, in µs.
	appends := func(kind string) (changes, stored float64, pages []float64) {
		was := size()
		for range each {
			n++
			together(b, threads, func(i int) error {
				_, err := l.Append(b.Context(), fmt.Sprint("t", i), []thread.Entry{kinds[kind](n)})
				return err
			})
			began := time.Now()
			if _, err := x.List(b.Context(), index.Query{Limit: 50}); err != nil {
				b.Fatal(err)
			}
			pages = append(pages, float64(time.Since(began).Microseconds()))
		}
		list(b, x, index.Query{Limit: 200})
		for _, r := range watching {
			for more := true; more; {
				var some []index.Change
				if some, more, err = r.Take(b.Context(), 500); err != nil {
					b.Fatal(err)
				}
				changes += float64(len(some))
			}
		}
		return changes, max(0, size()-was), pages
	}
	for range b.N {
		var changes, stored [2]float64
		var pages [2][]float64
		for round := range rounds {
			for i := range 2 {
				k := (i + round) % 2
				c, s, p := appends([]string{"delta", "entry"}[k])
				if round > 0 {
					changes[k], stored[k], pages[k] = changes[k]+c, stored[k]+s, append(pages[k], p...)
				}
			}
		}
		const all = (rounds - 1) * threads * each
		b.ReportMetric(changes[0]/all/readers, "changes/delta")
		b.ReportMetric(changes[1]/all/readers, "changes/entry")
		b.ReportMetric(stored[0]/all, "B-stored/delta")
		b.ReportMetric(stored[1]/all, "B-stored/entry")
		b.ReportMetric(middle(pages[0]), "µs-page-deltas")
		b.ReportMetric(middle(pages[1]), "µs-page-entries")
		if changes[0] > 0 || stored[0] > 0 || middle(pages[0]) > middle(pages[1]) {
			b.Error("the list feels deltas")
		}
	}
	b.ReportMetric(0, "ns/op")
}
