package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/proxy"
	"arbe.0sk.ar/runner/internal/test/output"
)

// A request beyond the limit of simultaneous ones gets 503 with Retry-After.
func TestProxyBusy(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, time.Second)
	url, _ := goProxy(t, u.URL, proxy.Proxy{MaxRequests: 1})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		resp, err := httpClient.Do(call{method: "GET", path: "/odd/hang"}.request(ctx, t, url))
		if err == nil {
			err = errors.Join(errors.New(resp.Status), resp.Body.Close())
		}
		done <- err
	}()
	<-u.waits
	if a := (call{method: "GET", path: "/odd/echo"}).do(t, url); a.status != 503 || a.code != "busy" ||
		a.header.Get("Retry-After") != "1" {
		t.Errorf("got %+v", a)
	}
	if a := (call{method: "GET", path: "/healthz"}).do(t, url); a.status != 200 {
		t.Errorf("got %+v", a)
	}
	cancel()
	<-u.gone
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for { // the place is free soon
		if a := (call{method: "GET", path: "/odd/echo"}).do(t, url); a.status == 200 {
			return
		}
	}
}

// A client that breaks off its body is not the upstream's fault.
func TestProxyUploadBreaks(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, time.Second)
	url, log := goProxy(t, u.URL, proxy.Proxy{})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn,
		"POST /odd/upload HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nfirst"); err != nil {
		t.Fatal(err)
	}
	if got := <-u.seen; got != "first" {
		t.Errorf("got %q", got)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-u.seen; got == "EOF" {
		t.Error("half a body is whole")
	}
	for began := time.Now(); !strings.Contains(log.String(), "path=/odd/upload"); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("the request's end is not in the log: %s", log)
		}
	}
	if log := log.String(); strings.Contains(log, "WARN") ||
		!strings.Contains(log, "status=400") && !strings.Contains(log, "status=499") {
		t.Error(log)
	}
}

// Nobody gets a tunnel, not even where the upstream would have it so.
func TestProxyUpgrade(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, time.Second)
	url, _ := goProxy(t, u.URL, proxy.Proxy{})
	for _, c := range []call{
		{method: "GET", path: "/odd/upgrade"},
		{method: "GET", path: "/odd/upgrade", header: []string{"Connection", "Upgrade", "Upgrade", "websocket"}},
	} {
		if a := c.do(t, url); a.status != 502 || a.code != "upstream_unreachable" {
			t.Errorf("got %+v", a)
		}
	}
	if a := (call{method: "TRACE", path: "/odd/echo"}).do(t, url); a.status != 405 {
		t.Errorf("got %+v", a)
	}
}

// serveProxy runs a proxy as arbe proxy does.
func serveProxy(ctx context.Context, p proxy.Proxy, ready chan<- string) error {
	p.Closing = ctx
	return httpd.Serve(ctx, "127.0.0.1:0", 100, p.Handler(), p.Logger, func(url string) { ready <- url })
}

// A proxy that ends disconnects waiting readers, and lets posts finish.
func TestServeProxy(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, time.Hour)
	up, err := proxy.ParseUpstream(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	log := &output.Buffer{}
	ready, served := make(chan string, 1), make(chan error, 1)
	go func() {
		served <- serveProxy(ctx, proxy.Proxy{Upstream: up, Logger: slog.New(slog.NewTextHandler(log, nil))}, ready)
	}()
	url := <-ready
	token := writer(t, "t1")
	if a := (call{method: "POST", path: "/arbe-thread-t1", token: token, body: chat("a", "x")}).do(t,
		url); a.status != 200 {
		t.Fatalf("got %+v", a)
	}
	waiting, sending := make(chan answer, 1), make(chan int, 1)
	go func() {
		waiting <- call{method: "GET", path: "/arbe-thread-t1?offset=now&live=long-poll", token: token}.do(t, url)
	}()
	<-u.waits
	body, feed := io.Pipe()
	go func() {
		req := call{method: "POST", path: "/odd/upload"}.request(t.Context(), t, url)
		req.Body, req.ContentLength = body, -1
		resp, err := httpClient.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		if err != nil {
			t.Error(err)
			close(sending)
			return
		}
		sending <- resp.StatusCode
	}()
	if _, err := io.WriteString(feed, "first"); err != nil {
		t.Fatal(err)
	}
	<-u.seen
	stop()
	if a := <-waiting; a.status != 503 || a.code != "closing" || a.header.Get("Retry-After") != "1" {
		t.Errorf("got %+v", a)
	}
	if err := feed.Close(); err != nil {
		t.Error(err)
	}
	<-u.seen
	if status := <-sending; status != 200 {
		t.Errorf("who was sending got %d", status)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// deadlines is a http.ResponseWriter that records its write deadlines.
type deadlines struct {
	*httptest.ResponseRecorder
	write time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.write = t
	return nil
}

// A client has its time for each part of an answer, and for its end, which may come long after the last part.
func TestProxyWriteDeadline(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, time.Second)
	up, err := proxy.ParseUpstream(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	h := (&proxy.Proxy{Upstream: up, Closing: t.Context(), Logger: slog.New(slog.DiscardHandler)}).Handler()
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	var ended time.Time
	go func() {
		ended = time.Now()
		u.more <- struct{}{}
	}()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/odd/slow", nil))
	if w.Body.String() != "first\nlast\n" || w.write.Before(ended.Add(10*time.Second)) ||
		w.write.After(time.Now().Add(time.Minute)) {
		t.Errorf("got %q, to be accepted until %v", w.Body, w.write)
	}
	w = &deadlines{ResponseRecorder: httptest.NewRecorder()}
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "/odd/nothing", nil))
	if w.Code != http.StatusTeapot || w.write.IsZero() {
		t.Errorf("got %d, to be accepted until %v", w.Code, w.write)
	}
}

// BenchmarkFronts is what a way to the server costs: an append of 1 KB, and a read of nothing; one client after the
// other, and 64 at once.
func BenchmarkFronts(b *testing.B) {
	u := newServer(b).srv.URL
	up, err := proxy.ParseUpstream(u)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, served := make(chan string, 1), make(chan error, 1)
	go func() {
		served <- serveProxy(ctx, proxy.Proxy{Upstream: up, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))},
			ready)
	}()
	defer func() {
		stop()
		if err := <-served; err != nil {
			b.Error(err)
		}
	}()
	bases := map[string]string{"direct": u, "proxy": <-ready}
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
	defer hc.CloseIdleConnections() // or the proxy would wait for them
	text := strings.Repeat("x", 920)
	for _, what := range []string{"append", "read"} {
		for _, clients := range []int{1, 64} {
			for _, front := range []string{"direct", "proxy"} {
				b.Run(fmt.Sprintf("%s/%d/%s", what, clients, front), func(b *testing.B) {
					var mu sync.Mutex
					var took []time.Duration
					var all sync.WaitGroup
					began := time.Now()
					for c := range clients {
						all.Go(func() {
							id := fmt.Sprintf("%s-%d-%d", front, clients, c)
							token := writer(b, id)
							var mine []time.Duration
							for i := range (b.N + clients - 1) / clients {
								method, path, body := "GET", "/api/stream/arbe-thread-"+id+"?offset=now", ""
								if what == "append" {
									method, body = "POST", chat(fmt.Sprintf("%d.%d.%d", c, i, began.UnixNano()), text)
								}
								start := time.Now()
								req, err := http.NewRequest(method, bases[front]+path, strings.NewReader(body))
								if err != nil {
									b.Error(err)
									return
								}
								req.Header.Set("Content-Type", "application/json")
								req.Header.Set("Authorization", "Bearer "+token)
								resp, err := hc.Do(req)
								if err != nil {
									b.Error(err)
									return
								}
								_, err = io.Copy(io.Discard, resp.Body)
								if err := errors.Join(err, resp.Body.Close()); err != nil ||
									resp.StatusCode/100 != 2 && resp.StatusCode != 404 {
									b.Error(resp.Status, err)
								}
								mine = append(mine, time.Since(start))
							}
							mu.Lock()
							defer mu.Unlock()
							took = append(took, mine...)
						})
					}
					all.Wait()
					slices.Sort(took)
					b.ReportMetric(float64(len(took))/time.Since(began).Seconds(), "req/s")
					b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
					b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
				})
			}
		}
	}
}
