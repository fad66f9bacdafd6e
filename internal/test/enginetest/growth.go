package enginetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
)

// Growth appends to one store, 64 writers on 1,000 streams, records of 1 KB with keys, and logs what an append costs as
// the store grows: to total records, or to GROWTH.
func Growth(b *testing.B, start Start, total int) {
	if s := os.Getenv("GROWTH"); s != "" {
		var err error
		if total, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	e := Must(start(b)())(b)
	grow(b, e, total)
	if err := e.Close(); err != nil {
		b.Error(err)
	}
	b.ReportMetric(0, "ns/op")
}

const growthStreams = 1000

func grow(b *testing.B, e log.Engine, total int) {
	texts := make([][]byte, 512)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range texts { // about as compressible as a transcript
		for len(texts[i]) < 1000 {
			texts[i] = strconv.AppendUint(append(texts[i], " word "...), r.Uint64(), 36)
		}
	}
	var locks [growthStreams]sync.Mutex
	var heads [growthStreams]engine.Head
	var n atomic.Int64
	var first float64
	for upTo := 10_000; upTo <= total; upTo *= 10 {
		from, began, used := n.Load(), time.Now(), cpu(b)
		var all sync.WaitGroup
		for w := range 64 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(w), uint64(upTo)))
				for i := n.Add(1); i <= int64(upTo); i = n.Add(1) {
					k := r.IntN(growthStreams)
					name, key := fmt.Sprint("arbe-thread-", k), fmt.Sprintf("pi:%d:%d", k, i)
					locks[k].Lock()
					if _, there, err := e.Lookup(b.Context(), name, key); there || err != nil {
						b.Error(there, err)
					}
					h, err := e.Append(b.Context(), name, One(heads[k].Last, key, texts[r.IntN(len(texts))]))
					if err != nil {
						b.Error(err)
					}
					heads[k] = h
					locks[k].Unlock()
				}
				n.Add(-1)
			})
		}
		all.Wait()
		count := float64(n.Load() - from)
		cost := float64((cpu(b) - used).Microseconds()) / count
		if first == 0 {
			first = cost
		}
		b.Logf("to %8d: %6.0f appends/s, %5.1f µs of processor time each, %.2f times the first",
			upTo, count/time.Since(began).Seconds(), cost, cost/first)
	}
	read, began := 0, time.Now()
	for k := range growthStreams / 10 {
		for after := uint64(0); after < heads[k].Last; {
			records := Must(e.Read(b.Context(), fmt.Sprint("arbe-thread-", k), after, heads[k].Last, 1<<20))(b)
			if len(records) == 0 {
				b.Fatal("records are missing")
			}
			for _, r := range records {
				read += len(r.Data)
			}
			after = records[len(records)-1].Seq
		}
	}
	b.Logf("replay of a tenth of the streams: %.0f MB/s", float64(read)/1e6/time.Since(began).Seconds())
}

// cpu is the processor time of this process. Other work on the machine changes it less than it changes the time
// elapsed.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
