package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/stream/store"
)

// BenchmarkGrowth appends to one store, 64 writers on 1,000 streams, records of 1 KB with keys, and tells what an append costs as the store grows to GROWTH
// records (10^6).
func BenchmarkGrowth(b *testing.B) {
	total := 1_000_000
	if s := os.Getenv("GROWTH"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			b.Fatal(err)
		}
		total = n
	}
	db, err := store.OpenPebble(b.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	const writers, streams = 64, 1000
	data := make([]byte, 1000)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range data { // compresses about as well as JSON does
		data[i] = "0123456789abcdef"[r.IntN(16)]
	}
	var locks [streams]sync.Mutex
	var heads [streams]store.Head
	ctx := context.Background()
	var n atomic.Int64
	for upTo := 10_000; upTo <= total; upTo *= 10 {
		from, began, used := n.Load(), time.Now(), cpu(b)
		var all sync.WaitGroup
		for w := range writers {
			all.Add(1)
			go func() {
				defer all.Done()
				r := rand.New(rand.NewPCG(uint64(w), uint64(upTo)))
				for {
					i := n.Add(1)
					if i > int64(upTo) {
						n.Add(-1)
						return
					}
					k := r.IntN(streams)
					name, key := "arbe-thread-"+strconv.Itoa(k), fmt.Sprintf("pi:%d:%d", k, i)
					locks[k].Lock()
					if _, there, err := db.Lookup(ctx, name, key); there || err != nil {
						b.Error(there, err)
					}
					h, err := db.Append(ctx, name, store.Append{After: heads[k].Last, Records: []store.Record{{At: time.Now(), Key: key, Data: data}}})
					if err != nil {
						b.Error(err)
					}
					heads[k] = h
					locks[k].Unlock()
				}
			}()
		}
		all.Wait()
		count := float64(n.Load() - from)
		b.ReportMetric(count/time.Since(began).Seconds(), fmt.Sprintf("appends/s-to-%d", upTo))
		b.ReportMetric(float64((cpu(b)-used).Microseconds())/count, fmt.Sprintf("cpu-µs/append-to-%d", upTo))
	}
	b.ReportMetric(0, "ns/op")
	read, began := 0, time.Now()
	for k := range streams / 10 {
		name := "arbe-thread-" + strconv.Itoa(k)
		for after := uint64(0); after < heads[k].Last; {
			records, err := db.Read(ctx, name, after, heads[k].Last, 1<<20)
			if err != nil || len(records) == 0 {
				b.Fatal(len(records), err)
			}
			for _, r := range records {
				read += len(r.Data)
			}
			after = records[len(records)-1].Seq
		}
	}
	b.ReportMetric(float64(read)/1e6/time.Since(began).Seconds(), "MB/s-replay")
}

// cpu is the time on processors that this process has had, which other work on the machine changes less than the time that passed.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
