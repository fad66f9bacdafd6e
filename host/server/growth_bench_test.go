package server_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkGrowth appends to one server's threads over HTTP, from 64 writers. It measures an append's cost as the store
// grows to 10^7 entries, or GROWTH.
func BenchmarkGrowth(b *testing.B) {
	total := 10_000_000
	if g := os.Getenv("GROWTH"); g != "" {
		var err error
		if total, err = strconv.Atoi(g); err != nil {
			b.Fatal(err)
		}
	}
	s, request := startServer(b, "pebble"), entries(b)
	from, first := 0, 0.0
	for upTo := 10_000; upTo <= total; upTo *= 10 {
		began, used := time.Now(), s.cpu(b)
		took, err := load(
			strings.TrimPrefix(s.url, "http://"),
			64,
			func(done int) bool { return from+done < upTo },
			func(buf []byte, n int) []byte { return request(buf, from+from/10+n) },
		)
		if err != nil {
			b.Fatal(err)
		}
		slices.Sort(took)
		cost := float64((s.cpu(b) - used).Microseconds()) / float64(len(took))
		if first == 0 {
			first = cost
		}
		b.Logf(
			"to %8d: %6.0f appends/s, p50 %.1f ms, p99 %.1f ms, %5.1f µs of the server's processors each, %.2f times "+
				"the first, %4.0f MiB",
			upTo,
			float64(len(took))/time.Since(began).Seconds(),
			took[len(took)/2].Seconds()*1000,
			took[len(took)*99/100].Seconds()*1000,
			cost,
			cost/first,
			s.rss(b),
		)
		from = upTo
	}
	b.ReportMetric(0, "ns/op")
}

// cpu is the time on processors that the server has had.
func (s *benchServer) cpu(b testing.TB) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// fill posts n entries of 1 KB to a thread, 500 a request.
func fill(b testing.TB, url string, threadNo, n int) {
	c, h, r := newWriter(b, url), head(b, "POST", threadNo), rand.New(rand.NewPCG(uint64(threadNo), 2))
	for i := 0; i < n; i += 500 {
		body := []byte{'['}
		for k := i; k < min(i+500, n); k++ {
			if len(body) > 1 {
				body = append(body, ',')
			}
			body = append(body, kilobyte(r, fmt.Sprint("e", k))...)
		}
		if _, err := c.request(h, append(body, ']')); err != nil {
			b.Fatal(err)
		}
	}
}
