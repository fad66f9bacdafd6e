package stream_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// BenchmarkAppendHTTP appends entries of 1 KB over HTTP, one a post, 64 writers on as many threads.
func BenchmarkAppendHTTP(b *testing.B) {
	s := newServer(b)
	var writers atomic.Int64
	b.SetParallelism(32) // times two cores
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	text := strings.Repeat("x", 920)
	b.RunParallel(func(pb *testing.PB) {
		w := writers.Add(1)
		token := writer(b, fmt.Sprintf("t%d", w))
		for i := 0; pb.Next(); i++ {
			body := chat(fmt.Sprintf("w%d.%d", w, i), text)
			req, err := http.NewRequest(http.MethodPost, s.srv.URL+fmt.Sprintf("/api/stream/arbe-thread-t%d", w), bytes.NewReader([]byte(body)))
			if err != nil {
				b.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", "Bearer "+token)
			resp, err := client.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				b.Error(resp.Status, err)
			}
			if err := resp.Body.Close(); err != nil {
				b.Error(err)
			}
		}
	})
}
