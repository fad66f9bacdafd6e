package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/server/metrics"
	"arbe.0sk.ar/runner/host/server/request"
)

// asks sends a request to h and returns the answer.
func asks(h http.Handler, method, target, remote, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = remote
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// guarded is a handler that accepts tokens that begin with "good".
var guarded = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer good") {
		w.WriteHeader(http.StatusUnauthorized)
	}
})

// whose returns the holder of a token that guarded accepts.
func whose(token string) (string, bool) { return token, strings.HasPrefix(token, "good") }

// nobody accepts no token.
func nobody(string) (string, bool) { return "", false }

func TestLimitRate(t *testing.T) {
	const a, b = "192.0.2.1:1000", "192.0.2.2:1000"
	type ask struct {
		wait               time.Duration
		target, from, with string
		times              int
		passed             int
		retry              string // Retry-After of the last one
	}
	for _, tt := range []struct {
		name string
		l    Rate
		asks []ask
	}{
		{"no limit", Rate{}, []ask{{target: "/", from: a, times: 1000, passed: 1000}}},
		{"a burst, and then the rate", Rate{PerSecond: 2, Burst: 5}, []ask{
			{target: "/", from: a, with: "good", times: 8, passed: 5, retry: "1"},
			{wait: time.Second, target: "/", from: a, with: "good", times: 8, passed: 2, retry: "1"},
			{wait: time.Hour, target: "/", from: a, with: "good", times: 8, passed: 5, retry: "1"},
		}},
		{"how long to wait", Rate{PerSecond: 0.1, Burst: 1}, []ask{
			{target: "/", from: a, with: "good", times: 2, passed: 1, retry: "10"},
			{wait: 9500 * time.Millisecond, target: "/", from: a, with: "good", times: 1, retry: "1"},
			{wait: 500 * time.Millisecond, target: "/", from: a, with: "good", times: 1, passed: 1},
		}},
		{"the burst is a second's worth", Rate{PerSecond: 2.5}, []ask{{target: "/", from: a, with: "good", times: 10, passed: 3, retry: "1"}}},
		{"each token its own, wherever it comes from", Rate{PerSecond: 1, Burst: 3}, []ask{
			{target: "/", from: a, with: "good1", times: 2, passed: 2},
			{target: "/", from: b, with: "good1", times: 2, passed: 1, retry: "1"},
			{target: "/", from: a, with: "good2", times: 4, passed: 3, retry: "1"},
		}},
		{"an address without a token", Rate{PerSecond: 1, Burst: 3}, []ask{
			{target: "/", from: a, times: 4, passed: 3, retry: "1"},
			{target: "/", from: "192.0.2.1:2000", times: 1, retry: "1"},
			{target: "/", from: "[::ffff:192.0.2.1]:2000", times: 1, retry: "1"},
			{target: "/", from: b, times: 4, passed: 3, retry: "1"},
		}},
		{"a host's addresses", Rate{PerSecond: 1, Burst: 3}, []ask{
			{target: "/", from: "[2001:db8::1]:1", times: 3, passed: 3},
			{target: "/", from: "[2001:db8::2]:1", times: 1, retry: "1"},
			{target: "/", from: "[2001:db8:0:1::1]:1", times: 1, passed: 1},
		}},
		{"invalid tokens count for their address", Rate{PerSecond: 1, Burst: 3}, []ask{
			{target: "/", from: a, with: "good", times: 1, passed: 1},
			{target: "/", from: a, with: "bad#", times: 10, passed: 3, retry: "1"},
			{target: "/", from: a, with: "good", times: 3, passed: 2, retry: "1"}, // a valid token
			{target: "/", from: b, with: "good2", times: 1, passed: 1},
		}},
		{"health", Rate{PerSecond: 1, Burst: 1}, []ask{
			{target: "/healthz", from: a, times: 9, passed: 9},
			{target: "/readyz", from: a, times: 9, passed: 9},
			{target: "/metrics", from: a, times: 9, passed: 9},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := front(guarded, metrics.New("test", nil, ""), tt.l, nil, whose)
				for i, k := range tt.asks {
					time.Sleep(k.wait)
					passed, retry := 0, ""
					for n := range k.times {
						w := asks(h, http.MethodGet, k.target, k.from, strings.ReplaceAll(k.with, "#", fmt.Sprint(n)))
						if w.Code != http.StatusTooManyRequests {
							passed++
							continue
						}
						retry = w.Header().Get("Retry-After")
						var body struct {
							Error struct{ Code, Message string }
						}
						if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Error.Code != "rate" ||
							body.Error.Message == "" ||
							w.Header().Get("Content-Type") != "application/json" {
							t.Errorf("refused with %s, %v", w.Body, err)
						}
					}
					if passed != k.passed || retry != k.retry {
						t.Errorf("%d: %d passed, Retry-After %q, want %d, %q", i, passed, retry, k.passed, k.retry)
					}
				}
			})
		})
	}
}

// A page of another origin can read the 429 of its request. Its preflight is not limited.
func TestLimitRateBrowser(t *testing.T) {
	h := front(guarded, metrics.New("test", nil, ""), Rate{PerSecond: 1, Burst: 1}, nil, whose)
	for range 5 {
		if w := asks(h, http.MethodOptions, "/v1/stream/a", "192.0.2.1:1", ""); w.Code == http.StatusTooManyRequests {
			t.Error("a preflight is refused")
		}
	}
	asks(h, http.MethodGet, "/v1/stream/a", "192.0.2.1:1", "good")
	w := asks(h, http.MethodGet, "/v1/stream/a", "192.0.2.1:1", "good")
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Access-Control-Allow-Origin") != "*" ||
		!strings.Contains(w.Header().Get("Access-Control-Expose-Headers"), "Retry-After") {
		t.Errorf("got %d, %v", w.Code, w.Header())
	}
}

// Connections above the limit are closed at once. When one closes, another is accepted.
func TestLimitConnections(t *testing.T) {
	m := metrics.New("test", nil, "")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Listener = httpd.NewLimit(2, m).Of(ln)
	srv.Start()
	defer srv.Close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // some are closed by then
		return c
	}
	// get asks on a connection, and returns "" where it was closed.
	get := func(c net.Conn) string {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return ""
		}
		b := make([]byte, 12)
		_, err := io.ReadFull(c, b)
		if err != nil {
			var slow net.Error
			if errors.As(err, &slow) && slow.Timeout() {
				t.Fatal("the connection is neither served nor closed")
			}
			return ""
		}
		return string(b)
	}
	first, second := dial(), dial()
	if get(first) != "HTTP/1.1 404" || get(second) != "HTTP/1.1 404" {
		t.Fatal("connections below the limit are not served")
	}
	for range 20 {
		if got := get(dial()); got != "" {
			t.Fatalf("one above the limit got %q", got)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for got := ""; got == ""; { // until the server has seen that it is closed
		got = get(dial())
	}
	text := asks(m.Handler(none, http.NotFound), http.MethodGet, "/metrics", "192.0.2.1:1", "").Body.String()
	if !strings.Contains(text, "arbe_connections_open 2\n") ||
		strings.Contains(text, "arbe_connections_refused_total 0\n") {
		t.Errorf("got %s", text)
	}
}

// A client that is refused while it sends its body can read the answer.
func TestLimitConnectionsRefusal(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(front(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1000)); err != nil {
			request.Refuse(http.StatusRequestEntityTooLarge, "too_large", "the body is too large").Write(w)
		}
	}), metrics.New("test", nil, ""), Rate{PerSecond: 1000}, io.Discard, nobody))
	srv.Listener = httpd.NewLimit(20_000, metrics.New("test", nil, "")).Of(ln)
	srv.Start()
	defer srv.Close()
	for range 5 {
		resp, err := http.Post(
			srv.URL+"/api/stream/arbe-thread-t1",
			"application/json",
			strings.NewReader(strings.Repeat("x", 4<<20)),
		)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil ||
			resp.StatusCode != http.StatusRequestEntityTooLarge ||
			!strings.Contains(string(b), "too_large") {
			t.Errorf("got %s %q, %v", resp.Status, b, err)
		}
	}
}
