package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/server/metrics"
)

// A client that sends requests and reads no answers is disconnected, whatever it requests. Others can read the metrics
// meanwhile.
func TestPipelinedReadsNothing(t *testing.T) {
	b := besiege(t)
	m := metrics.New("test", nil, "")
	b.Server.Metrics = m
	srv := httptest.NewUnstartedServer(httpd.Paced(front(b.handler(), m, Rate{PerSecond: 1, Burst: 1}, nil, nobody),
		500*time.Millisecond))
	var mu sync.Mutex
	active := map[net.Conn]bool{}
	srv.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew { // few answers fill the way to a client that reads none
			if err := c.(*net.TCPConn).SetWriteBuffer(4 << 10); err != nil {
				t.Error(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if active[c] = state == http.StateActive; !active[c] {
			delete(active, c)
		}
	}
	srv.Start()
	defer srv.Close()
	for _, path := range []string{
		"/metrics", "/metrics", "/metrics", "/metrics", "/metrics", "/healthz",
		"/api/stream/arbe-thread-x", "/v1/stream/x",
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err == nil; {
				_, err = io.WriteString(c, request)
			}
		}()
		defer func() {
			_ = c.Close()
			<-ended
		}()
	}
	for range 3 { // while they are there
		resp, err := http.Get(srv.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK ||
			!strings.Contains(string(text), "arbe_memory_budget_bytes") {
			t.Errorf("measurements: %s %v", resp.Status, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	b.until(
		"rid of them",
		func() bool { // some wait for a request that the client's own buffers hold back: those are idle
			mu.Lock()
			defer mu.Unlock()
			return len(active) == 0
		},
	)
}
