package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// cpu returns the time on processors that this process has had.
func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkProjector has 10,000 threads, of which 100 grow by an entry a second each. It reports how far the rows are
// behind the log, what that costs this process, how long all rows take to be made, and how long lists take.
func BenchmarkProjector(b *testing.B) {
	const threads, growing, seconds = 10_000, 100, 20
	url := databases.New(b)
	db := must(control.Open(b.Context(), url, control.Config{}))(b)
	defer db.Close()
	quiet := slog.New(slog.DiscardHandler)
	l := log.New(must(pebble.Open(b.TempDir(), quiet))(b))
	x := must(index.Open(b.TempDir(), "i1", l, quiet))(b)
	l.Changed = x.Changed
	defer func() { check(b, errors.Join(x.Close(), l.Close())) }()
	h := newHouse(b, db)
	c := connect(b, url)
	_ = must(c.Exec(b.Context(), `insert into threads (id, stream_id, house_id, agent_id, status, created_at)
		select 't' || i, 't' || i, $1, $2, 'idle', now() - i * interval '1 minute' from generate_series(0, $3 - 1) i`,
		h.id, h.bot, threads))(b)
	var writers sync.WaitGroup
	for k := range 64 {
		writers.Go(func() {
			for i := k; i < threads; i += 64 {
				entries := []thread.Entry{signal("r1", "running", "running"), signal("r1", "end.0", "completed")}
				if _, err := l.Append(b.Context(), fmt.Sprint("t", i), entries); err != nil {
					b.Error(err)
				}
			}
		})
	}
	writers.Wait()
	knows := func(context.Context, string, string) (bool, error) { return false, nil }
	p := &control.Projector{DB: db, Index: x, Knows: knows, Logger: quiet}
	for range b.N {
		_ = must(c.Exec(b.Context(), "truncate thread_cache"))(b)
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 2)
		began := time.Now()
		go func() { ended <- x.Run(ctx) }()
		go func() { ended <- p.Run(ctx) }()
		until := func(sql string, args ...any) {
			for done := false; !done; {
				check(b, c.QueryRow(b.Context(), sql, args...).Scan(&done))
				time.Sleep(time.Millisecond) // between two looks
			}
		}
		until("select count(*) = $1 from thread_cache", threads)
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-all-rows")

		used, from := cpu(b), time.Now()
		var lags []time.Duration
		for n := range seconds {
			run := fmt.Sprint("n", b.N, ".", n)
			tick := time.Now()
			for i := range growing {
				e := []thread.Entry{signal(run[1:], "running", "running")}
				e[0].ID = fmt.Sprint("x", run)
				must(l.Append(b.Context(), fmt.Sprint("t", i*(threads/growing)), e))(b)
			}
			offset := must(x.Summary(b.Context(), fmt.Sprint("t", (growing-1)*(threads/growing))))(b).Offset
			until("select upto >= $1 from thread_cache where thread_id = $2", offset,
				fmt.Sprint("t", (growing-1)*(threads/growing)))
			lags = append(lags, time.Since(tick))
			time.Sleep(time.Until(tick.Add(time.Second)))
		}
		slices.Sort(lags)
		b.ReportMetric(float64(lags[len(lags)-1].Milliseconds()), "ms-lag-max")
		b.ReportMetric(float64(lags[len(lags)/2].Milliseconds()), "ms-lag-median")
		b.ReportMetric(100*float64(cpu(b)-used)/float64(time.Since(from)), "%-cpu")
		var lists []time.Duration
		for range 200 {
			at := time.Now()
			must(db.As(h.member).Threads(b.Context(), rows.Query{House: h.id, Limit: 200}))(b)
			lists = append(lists, time.Since(at))
		}
		slices.Sort(lists)
		b.ReportMetric(lists[len(lists)*99/100].Seconds()*1000, "ms-list-p99")
		b.ReportMetric(lists[len(lists)/2].Seconds()*1000, "ms-list-median")
		cancel()
		check(b, errors.Join(<-ended, <-ended))
	}
	b.ReportMetric(0, "ns/op")
}
