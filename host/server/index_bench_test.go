package server_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkIndexed appends entries of 1 KB over HTTP from 64 writers to 1,000 threads of two servers in turns: one with
// its index of threads, and one whose index can't be opened.
func BenchmarkIndexed(b *testing.B) {
	const rounds, turn = 21, time.Second
	with := startServer(b, "pebble")
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "index"), nil, 0o600); err != nil { // in the place of its folder
		b.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{"ARBE_BENCH_SERVE=" + dir}
	without := startServerBy(b, "pebble", cmd)
	request, n := entries(b), 0
	post := func(s *benchServer) (count, rate, cpu float64) {
		began, used, first := time.Now(), s.cpu(b), n
		took, err := load(
			strings.TrimPrefix(s.url, "http://"),
			64,
			func(int) bool { return time.Since(began) < turn },
			func(buf []byte, i int) []byte { n = max(n, first+i+1); return request(buf, first+i) },
		)
		if err != nil {
			b.Fatal(err)
		}
		count = float64(len(took))
		return count, count / time.Since(began).Seconds(), float64((s.cpu(b) - used).Microseconds())
	}
	for range b.N {
		var rates [2][]float64
		var counts, cpus [2]float64
		for round := range rounds {
			for i := range 2 { // each is the first one in half of the rounds
				k := (i + round) % 2
				count, rate, cpu := post([]*benchServer{without, with}[k])
				if round > 0 {
					rates[k], counts[k], cpus[k] = append(rates[k], rate), counts[k]+count, cpus[k]+cpu
				}
			}
		}
		b.ReportMetric(middle(rates[0]), "appends/s-without")
		b.ReportMetric(middle(rates[1]), "appends/s-with")
		b.ReportMetric(cpus[0]/counts[0], "µs-cpu-without")
		b.ReportMetric(cpus[1]/counts[1], "µs-cpu-with")
		b.ReportMetric(100*(1-middle(rates[1])/middle(rates[0])), "%-fewer")
		b.ReportMetric(100*(cpus[1]/counts[1]/(cpus[0]/counts[0])-1), "%-cpu")
	}
	b.ReportMetric(0, "ns/op")
}

// middle returns the median.
func middle(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
