package store_test

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/stream/store"
)

// BenchmarkNATSAppend appends records of 1 KB, one at a time, to 1000 streams, each of which has one writer. The one server syncs each.
func BenchmarkNATSAppend(b *testing.B) {
	const streams = 1000
	data := bytes.Repeat([]byte("x"), 1000)
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) {
			config := natsConfig(b, startNATS(b, nil))
			config.Shards, config.Logger = 16, nil
			e := openNATS(b, config)
			var all sync.WaitGroup
			took := make([][]time.Duration, writers)
			b.ResetTimer()
			for w := range writers {
				all.Go(func() {
					heads := map[int]uint64{}
					for i := w; i < b.N; i += writers {
						s := i % streams
						if streams%writers != 0 { // each to its own
							s = w + i/writers%(streams/writers)*writers
						}
						begin := time.Now()
						h, err := e.Append(b.Context(), fmt.Sprint("s", s), store.Append{After: heads[s], Records: []store.Record{{At: now, Key: fmt.Sprint(i), Data: data}}})
						if err != nil {
							b.Error(err)
							return
						}
						heads[s] = h.Last
						took[w] = append(took[w], time.Since(begin))
					}
				})
			}
			all.Wait()
			b.StopTimer()
			sorted := slices.Sorted(slices.Values(slices.Concat(took...)))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
			b.ReportMetric(float64(sorted[len(sorted)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(sorted[len(sorted)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkNATSRead reads a stream of 2000 records of 1 KB from start to end, appended one by one or 100 at a time, among 19 like it.
func BenchmarkNATSRead(b *testing.B) {
	const streams, records = 20, 2000
	data := bytes.Repeat([]byte("x"), 1000)
	for _, at := range []int{1, 100} {
		b.Run(fmt.Sprint("append=", at), func(b *testing.B) {
			config := natsConfig(b, startNATS(b, nil))
			config.Shards, config.Logger = 1, nil
			e := openNATS(b, config)
			heads := make([]store.Head, streams)
			for i := 0; i < records; i += at {
				for s := range heads {
					rs := make([]store.Record, at)
					for j := range rs {
						rs[j] = store.Record{At: now, Key: fmt.Sprint(i + j), Data: data}
					}
					heads[s] = must(e.Append(b.Context(), fmt.Sprint("s", s), store.Append{After: heads[s].Last, Records: rs}))(b)
				}
			}
			b.SetBytes(int64(records * len(data)))
			b.ResetTimer()
			for i := range b.N {
				s, count := i%streams, 0
				for after := uint64(0); after < heads[s].Last; {
					rs := must(e.Read(b.Context(), fmt.Sprint("s", s), after, heads[s].Last, 1<<20))(b)
					after = rs[len(rs)-1].Seq
					count += len(rs)
				}
				if count != records {
					b.Fatal(count)
				}
			}
		})
	}
}
