package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/server/metrics"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/internal/test/output"
)

// served returns a server of h behind front, that ends with the test.
func served(t *testing.T, h http.Handler, m *metrics.Set, l Rate, access io.Writer) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(front(h, m, l, access, nobody))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

func TestAccessLog(t *testing.T) {
	log := make(output.Lines, 10)
	srv := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.Method == "PATCH" {
			return // without a status and a body
		}
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, strings.Repeat("x", 3+len(b)))
	}), metrics.New("test", nil, ""), Rate{}, log)
	const secret = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln"
	for _, tt := range []struct {
		name, method, target, body string
		header                     []string
		want                       map[string]any // beside what all have in common
	}{
		{"a post", "POST", "/api/stream/arbe-thread-t1", "four", nil, map[string]any{"path": "/api/stream/arbe-thread-t1", "bytes_in": 4., "bytes_out": 7.}},
		{"a read", "GET", "/a?offset=00000000000000000042&live=sse", "", nil, map[string]any{"offset": "00000000000000000042", "live": "sse"}},
		{"the start as others write it", "GET", "/a?offset=0000000000000000_0000000000000000", "", nil, map[string]any{"offset": "0000000000000000_0000000000000000"}},
		{"from now", "GET", "/a?live=long-poll&offset=now", "", nil, map[string]any{"offset": "now", "live": "long-poll"}},
		{"a secret in the query", "GET", "/a?token=" + secret + "&offset=" + secret + "&live=" + secret + "&" + secret, "", nil, nil},
		{"line breaks", "GET", "/a%0d%0a%22%1b%5b2J%c2%9b?offset=1%0A2", "", nil, map[string]any{"path": "/a%0d%0a%22%1b%5b2J%c2%9b"}},
		{"a long path", "GET", "/" + strings.Repeat("a", 5000), "", nil, map[string]any{"path": "/" + strings.Repeat("a", 499)}},
		{"HEAD", "HEAD", "/a", "", nil, map[string]any{"bytes_out": 0.}},
		{"no status and no body", "PATCH", "/a", "", nil, map[string]any{"status": 200., "bytes_out": 0.}},
		{"a request id", "GET", "/a", "", []string{"X-Request-Id", "job-7.Try_2"}, map[string]any{"request_id": "job-7.Try_2"}},
		{"a bad request id", "GET", "/a", "", []string{"X-Request-Id", "a b"}, nil},
		{"a long request id", "GET", "/a", "", []string{"X-Request-Id", strings.Repeat("a", 65)}, nil},
		{"a user agent", "GET", "/a", "", []string{"User-Agent", "x\t\xff\u009b" + strings.Repeat("y", 300)}, map[string]any{"user_agent": "x???" + strings.Repeat("y", 195)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(
				t.Context(),
				tt.method,
				srv.URL+tt.target,
				strings.NewReader(tt.body),
			)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+secret)
			req.Header.Set("User-Agent", "test")
			for i := 0; i < len(tt.header); i += 2 {
				req.Header.Set(tt.header[i], tt.header[i+1])
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
			got := log.Next(t)
			if text := fmt.Sprint(got); strings.Contains(text, "eyJ") || strings.Contains(text, "Bearer") {
				t.Errorf("a secret is in the log: %s", text)
			}
			at, err := time.Parse(time.RFC3339, fmt.Sprint(got["time"]))
			if took, ok := got["duration_ms"].(float64); err != nil || time.Since(at) > time.Minute || !ok ||
				took < 0 {
				t.Errorf("time %v, duration %v, %v", got["time"], got["duration_ms"], err)
			}
			id := fmt.Sprint(got["request_id"])
			if resp.Header.Get("X-Request-Id") != id || len(id) > 64 || strings.ContainsAny(id, " \n") || id == "" {
				t.Errorf("the request id is %q, and %q in the answer", id, resp.Header.Get("X-Request-Id"))
			}
			want := map[string]any{
				"method":     tt.method,
				"path":       "/a",
				"status":     418.,
				"bytes_in":   0.,
				"bytes_out":  3.,
				"remote_ip":  "127.0.0.1",
				"user_agent": "test",
			}
			for key, v := range tt.want {
				want[key] = v
			}
			for _, key := range []string{"time", "duration_ms"} {
				delete(got, key)
			}
			if _, given := tt.want["request_id"]; !given {
				delete(got, "request_id")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A waiting reader is logged when it ends, with its kind of end. It gets each write at once.
func TestAccessLogOfEnds(t *testing.T) {
	log := make(output.Lines, 10)
	arrived := make(chan struct{}, 10)
	srv := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		rc := http.NewResponseController(w)
		if err := errors.Join(rc.SetWriteDeadline(time.Now().Add(time.Minute)),
			rc.SetReadDeadline(time.Time{})); err != nil {
			t.Errorf("deadlines: %v", err)
		}
		if r.URL.Path != "/gone" {
			fmt.Fprintln(w, "first")
			if err := rc.Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
			if _, ok := w.(http.Flusher); !ok {
				t.Error("no http.Flusher")
			}
		}
		switch r.URL.Path {
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/deadline":
			if err := rc.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
				t.Errorf("deadlines: %v", err)
			}
			if _, err := w.Write(make([]byte, 1<<20)); err == nil {
				t.Error("written after the deadline")
			}
		default:
			<-r.Context().Done()
		}
	}), metrics.New("test", nil, ""), Rate{}, log)
	for path, want := range map[string]string{
		"/abort": "200 aborted", "/deadline": "200", "/leave": "200",
		"/gone": "499",
	} {
		for len(arrived) > 0 {
			<-arrived
		}
		ctx, cancel := context.WithCancel(t.Context())
		if path == "/gone" {
			go func() {
				<-arrived
				cancel()
			}()
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if path != "/gone" {
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(resp.Body)
			if first, err := lines.ReadString('\n'); first != "first\n" {
				t.Errorf("%s: got %q, %v", path, first, err)
			}
			if len(log) > 0 && path == "/leave" {
				t.Error("the reader is logged before it ended")
			}
			if path == "/abort" {
				if _, err := io.ReadAll(lines); err == nil {
					t.Error("the answer that broke off looks whole")
				}
			}
		}
		cancel()
		got := log.Next(t)
		status := fmt.Sprint(got["status"])
		if got["aborted"] == true {
			status += " aborted"
		}
		if got["path"] != path || status != want {
			t.Errorf("got %v, want %s", got, want)
		}
		if err == nil {
			_ = resp.Body.Close() // it was broken off
		}
	}
}

// A client that sends Expect: 100-continue is refused before it sends its body: the layers keep that of net/http.
func TestAccessLogExpectContinue(t *testing.T) {
	log := make(output.Lines, 1)
	srv := served(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		request.Refuse(http.StatusUnauthorized, "no_token", "a bearer token is required").Write(w)
	}), metrics.New("test", nil, ""), Rate{PerSecond: 100}, log)
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(
		c,
		"POST /api/stream/arbe-thread-t1 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
	)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Fatalf("got %v, %v", resp, err)
	}
	if got := log.Next(t); got["status"] != 401. || got["bytes_in"] != 0. {
		t.Errorf("got %v", got)
	}
}

// Lines of requests at the same time never mix.
func TestAccessLogConcurrently(t *testing.T) {
	var b bytes.Buffer // the log writes one line at a time
	srv := served(t, http.NotFoundHandler(), metrics.New("test", nil, ""), Rate{}, &b)
	done := make(chan error)
	for range 8 {
		go func() {
			var err error
			for range 20 {
				resp, e := http.Get(srv.URL)
				if e == nil {
					e = resp.Body.Close()
				}
				err = errors.Join(err, e)
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	srv.Close()
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %q", line)
		}
	}
	if len(lines) != 160 {
		t.Errorf("%d lines", len(lines))
	}
}
