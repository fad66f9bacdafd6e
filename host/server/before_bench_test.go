package server_test

import (
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkBefore reads the last piece of a thread of 10^6 entries of 1 KB, or BEFORE, and pieces from random places of
// it, over HTTP. On NATS each entry is an append of its own, and the thread has a fiftieth of that; nats-sparse is a
// thread of a thousand that were appended to by turns, which have as many entries together.
func BenchmarkBefore(b *testing.B) {
	total := 1_000_000
	if n := os.Getenv("BEFORE"); n != "" {
		var err error
		if total, err = strconv.Atoi(n); err != nil {
			b.Fatal(err)
		}
	}
	for _, bb := range []struct {
		name, engine string
		entries      int
		fill         func(b testing.TB, url string, n int)
	}{
		{"pebble", "pebble", total, func(b testing.TB, url string, n int) { fill(b, url, 0, n) }},
		{"nats", "nats", total / 50, func(b testing.TB, url string, n int) { fillSingly(b, url, 1, n) }},
		{"nats-sparse", "nats", total / 50, func(b testing.TB, url string, n int) { fillSingly(b, url, benchThreads, n) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s := startServer(b, bb.engine)
			bb.fill(b, s.url, bb.entries)
			url, token := s.url+"/api/stream/arbe-thread-t0", writer(b, "t0")
			_, first := page(b, url+"?offset=0&limit=1", token)
			_, last := page(b, url+"?offset=now&limit=1", token)
			r := rand.New(rand.NewPCG(1, 2))
			middle := func() string { return fmt.Sprintf("%020d", first+r.Uint64N(last-first+1)) }
			for _, tt := range []struct {
				name  string
				query func() string
			}{
				{"-nothing", func() string { return "?limit=1&offset=now" }}, // the control: what any request takes
				{"-last50", func() string { return "?limit=50&before=now" }},
				{"-middle50", func() string { return "?limit=50&before=" + middle() }},
				{"-middle1000", func() string { return "?limit=1000&before=" + middle() }},
				{"-forward50", func() string { return "?limit=50&offset=" + middle() }},
			} {
				var took []time.Duration
				for i := range 300 {
					began := time.Now()
					lines, _ := page(b, url+tt.query(), token)
					if took = append(took, time.Since(began)); lines == 0 && i > 0 && tt.name != "-nothing" {
						b.Logf("%s: an empty page", tt.name)
					}
				}
				percentiles(b, took, tt.name)
			}
			// As much work as 50 entries take, without a server, shows how long one waits for a processor.
			var took []time.Duration
			work, sum := make([]byte, 1<<20), uint32(0)
			for range 300 {
				began := time.Now()
				for range 4 {
					sum = crc32.Update(sum, crc32.IEEETable, work)
				}
				took = append(took, time.Since(began))
			}
			percentiles(b, took, "-alone")
			b.ReportMetric(float64(bb.entries), "entries")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// page reads a piece, and returns its number of entries and the seq of its next offset.
func page(b testing.TB, url, token string) (lines int, next uint64) {
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := httpClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Fatalf("%s, %v, %.200s", resp.Status, err, body)
	}
	seq, _, _ := strings.Cut(resp.Header.Get("Stream-Next-Offset"), "_")
	if next, err = strconv.ParseUint(seq, 10, 64); err != nil {
		b.Fatal(err)
	}
	return strings.Count(string(body), "\n"), next
}

// fillSingly posts n entries of 1 KB, one a request, to some threads by turns, from 16 writers.
func fillSingly(b testing.TB, url string, threads, n int) {
	heads, text := make([]string, threads), kilobyte(rand.New(rand.NewPCG(1, 3)), "0123456789012345")
	for i := range heads {
		heads[i] = head(b, "POST", i)
	}
	_, err := load(strings.TrimPrefix(url, "http://"), 16, func(done int) bool { return done < n },
		func(buf []byte, i int) []byte {
			buf = append(append(buf, heads[i%threads]...), "Content-Length: "...)
			buf = append(strconv.AppendInt(buf, int64(len(text)), 10), "\r\n\r\n"...)
			buf = append(buf, text...)
			copy(buf[len(buf)-len(text)+len(`{"id":"`):], fmt.Sprintf("%016d", i))
			return buf
		})
	if err != nil {
		b.Fatal(err)
	}
}
