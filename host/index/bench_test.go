package index_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/thread"
)

// together calls f for 0 to n-1 from 64 goroutines.
func together(b *testing.B, n int, f func(i int) error) {
	var all sync.WaitGroup
	var next atomic.Int64
	for range 64 {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := f(int(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// output returns an entry of 1 KB.
func output(id string) thread.Entry {
	const payload = `{"type":"pi.tool_result","toolName":"bash","message":{"text":%q}}`
	return thread.Entry{
		ID: id, TS: "2026-01-01T00:00:00.000Z",
		Payload: fmt.Appendf(nil, payload, strings.Repeat("a tool's output. ", 60)),
	}
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkListThreads makes the index of 100,000 threads of four entries, and takes pages of it.
func BenchmarkListThreads(b *testing.B) {
	const threads = 100_000
	l := newLog(b)
	together(b, threads, func(i int) error {
		entries := []thread.Entry{
			prompt("r1", "do what is to be done here"), status("r1", "running", "running"),
			signalled("r1", "sandbox", thread.TypeSandbox, `,"sandbox":{"provider":"local","ref":"b1"}`),
			status("r1", "end.0", []string{"completed", "failed", "running"}[i%3]),
		}
		_, err := l.Append(context.Background(), fmt.Sprintf("0198c7a1-0000-7000-8000-%012d", i), entries)
		return err
	})
	dir := b.TempDir()
	for range b.N {
		before := heap()
		for _, what := range []string{"ms-build", "ms-open"} {
			x, err := index.Open(dir, "i1", l, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			stop := run(b, x)
			b.ReportMetric(float64(time.Since(began).Milliseconds()), what)
			if what == "ms-build" {
				stop()
				continue
			}
			b.ReportMetric((heap()-before)/threads, "heap-B/thread")
			for _, q := range []index.Query{{Limit: 50}, {Limit: 200}, {Limit: 50, Statuses: []string{"idle"}}} {
				var took []time.Duration
				for range 2000 {
					began := time.Now()
					if _, err := x.List(context.Background(), q); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				name := fmt.Sprint("ms-p99-", q.Limit, strings.Join(q.Statuses, ""))
				b.ReportMetric(took[len(took)*99/100].Seconds()*1000, name)
			}
			stop()
		}
		info, err := os.Stat(filepath.Join(dir, "threads.0"))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/threads, "file-B/thread")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAppendIndexed appends entries of 1 KB, one at a time, on 1,000 threads from 64 writers, with and without an
// index in turns.
func BenchmarkAppendIndexed(b *testing.B) {
	const rounds, turn, threads = 21, time.Second, 1000
	for range b.N {
		l := newLog(b)
		x, err := index.Open(b.TempDir(), "i1", l, slog.New(slog.DiscardHandler))
		if err != nil {
			b.Fatal(err)
		}
		stop := run(b, x)
		var n atomic.Int64
		appends := func() (count, rate, cpu float64) {
			began, used, first := time.Now(), processorTime(b), n.Load()
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					for time.Since(began) < turn {
						i := n.Add(1)
						e := output(fmt.Sprint("pi:s:", i))
						_, err := l.Append(context.Background(), fmt.Sprint("t", i%threads), []thread.Entry{e})
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			count = float64(n.Load() - first)
			return count, count / time.Since(began).Seconds(), float64((processorTime(b) - used).Microseconds())
		}
		var rates [2][]float64
		var counts, cpus [2]float64
		for round := range rounds {
			for i := range 2 { // each is the first one in half of the rounds
				k := (i + round) % 2
				if l.Changed = nil; k == 1 {
					for i := range threads { // what was appended without it
						if _, err := x.Summary(b.Context(), fmt.Sprint("t", i)); round+i > 0 && err != nil {
							b.Fatal(err)
						}
					}
					l.Changed = x.Changed
				}
				runtime.GC()
				count, rate, cpu := appends()
				if round > 0 {
					rates[k], counts[k], cpus[k] = append(rates[k], rate), counts[k]+count, cpus[k]+cpu
				}
			}
		}
		stop()
		b.ReportMetric(middle(rates[0]), "appends/s-without")
		b.ReportMetric(middle(rates[1]), "appends/s-with")
		b.ReportMetric(cpus[0]/counts[0], "µs-cpu-without")
		b.ReportMetric(cpus[1]/counts[1], "µs-cpu-with")
		b.ReportMetric(100*(1-middle(rates[1])/middle(rates[0])), "%-fewer")
		b.ReportMetric(100*(cpus[1]/counts[1]/(cpus[0]/counts[0])-1), "%-cpu")
	}
	b.ReportMetric(0, "ns/op")
}

// processorTime is the time on processors that this process has had.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// middle returns the median.
func middle(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkFold folds entries of 1 KB.
func BenchmarkFold(b *testing.B) {
	l := newLog(b)
	x, err := index.Open(b.TempDir(), "i1", l, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	for i := range 20 {
		entries := make([]thread.Entry, 1000)
		for k := range entries {
			entries[k] = output(fmt.Sprint("pi:s:", i, ".", k))
		}
		if _, err := l.Append(b.Context(), "t1", entries); err != nil {
			b.Fatal(err)
		}
	}
	began := time.Now()
	if _, err := x.Summary(b.Context(), "t1"); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(began).Microseconds())/20_000, "µs/entry")
	b.ReportMetric(0, "ns/op")
}
