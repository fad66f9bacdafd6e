package jetstream_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// BenchmarkColdLookup looks up a key in the middle of a stream that a new engine has not read: the first look-up, and
// the next one. Before, it finds one that is near the stream's end.
func BenchmarkColdLookup(b *testing.B) {
	for _, records := range []int{1000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			s := start(b, func(o *server.Options) { o.SyncAlways = false }) // only the appends before would sync
			config := configOf(b, s)
			config.Shards = 1
			fillOneByOne(b, open(b, config), 1, records)
			var cold, warm, near []time.Duration
			for range 5 {
				e := open(b, config)
				began := time.Now()
				if _, ok, err := e.Find(b.Context(), benchStream(0), fmt.Sprint("pi:0:", records-5)); !ok ||
					err != nil {
					b.Fatal(ok, err)
				}
				near = append(near, time.Since(began))
				e = open(b, config)
				for _, took := range []*[]time.Duration{&cold, &warm} {
					began := time.Now()
					if _, ok, err := e.Lookup(b.Context(), benchStream(0), fmt.Sprint("pi:0:", records/2)); !ok ||
						err != nil {
						b.Fatal(ok, err)
					}
					*took = append(*took, time.Since(began))
				}
			}
			slices.Sort(cold)
			slices.Sort(warm)
			slices.Sort(near)
			b.ReportMetric(near[2].Seconds()*1000, "ms-near-end")
			b.ReportMetric(cold[2].Seconds()*1000, "ms-first")
			b.ReportMetric(warm[2].Seconds()*1000, "ms-next")
			b.ReportMetric(0, "ns/op")
		})
	}
}
