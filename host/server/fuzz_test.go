package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// No request makes the server fail with a panic or a 5xx. What it has taken can be read in its form: a thread as lines
// of entries, a JSON stream as an array.
func FuzzHandlers(f *testing.F) {
	for _, s := range []struct{ method, target, header, body string }{
		{"POST", "/api/stream/arbe-thread-t1", "Content-Type: application/json", chat("a", "x")},
		{"POST", "/api/stream/arbe-thread-t1", "Content-Type: application/json", "[" + chat("a", "x") + "," + chat("b", "\u2028") + "]"},
		{"GET", "/api/stream/arbe-thread-t1?offset=0&live=long-poll", "", ""},
		{"PUT", "/v1/stream/s1", "Content-Type: application/json\nStream-TTL: 5", `[1,{"a":[]}]`},
		{"POST", "/v1/stream/s1", "Content-Type: application/json\nProducer-Id: p\nProducer-Epoch: 0\nProducer-Seq: 0", `[[1],"x"]`},
		{"POST", "/v1/stream/s1", "Stream-Closed: true", ""},
		{"PUT", "/v1/stream/s2", "Stream-Forked-From: /v1/stream/s1\nStream-Fork-Offset: -1\nStream-Fork-Sub-Offset: 1", ""},
		{"GET", "/v1/stream/s1?offset=-1", "If-None-Match: \"x\"", ""},
		{"HEAD", "/v1/stream/s2", "", ""},
		{"DELETE", "/v1/stream/s1", "", ""},
		{"OPTIONS", "/v1/stream/s%2f1", "", ""},
		{"POST", "/api/stream/arbe-thread-t1/token", "", ""},
	} {
		f.Add(s.method, s.target, s.header, []byte(s.body))
	}
	engine, err := pebble.Open(f.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	streams := log.New(engine)
	f.Cleanup(func() {
		if err := streams.Close(); err != nil {
			f.Error(err)
		}
	})
	handler := (&server.Server{
		Log: streams, Secrets: [][]byte{secret}, LongPoll: time.Millisecond, Insecure: true,
		Logger: slog.New(slog.DiscardHandler),
	}).Handler()
	token := mint(
		f,
		token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeWrite, token.ScopeRenew}},
	)
	do := func(method, target, header string, body []byte) *httptest.ResponseRecorder {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") {
			return nil
		}
		r := &http.Request{
			Method:     method,
			URL:        u,
			RequestURI: target,
			Proto:      "HTTP/1.1",
			ProtoMajor: 1,
			ProtoMinor: 1,
			Host:       "x",
			Header:     http.Header{"Authorization": {"Bearer " + token}},
		}
		r = r.WithContext(context.Background())
		r.Body, r.ContentLength = http.NoBody, int64(len(body))
		if len(body) > 0 {
			r = r.Clone(r.Context())
			r.Body = http.MaxBytesReader(nil, readCloser{bytes.NewReader(body)}, 1<<30)
		}
		for line := range strings.Lines(header) {
			if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
				r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
			}
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	f.Fuzz(func(t *testing.T, method, target, header string, body []byte) {
		if strings.Contains(target, "live=sse") {
			return // it would wait for a minute
		}
		w := do(method, target, header, body)
		if w == nil {
			return
		}
		if w.Code >= 500 {
			t.Fatalf("%s %q with %q and %q: %d %s", method, target, header, body, w.Code, w.Body)
		}
		for line := range strings.Lines(do("GET", "/api/stream/arbe-thread-t1", "", nil).Body.String()) {
			var e thread.Entry
			if err := json.Unmarshal([]byte(line), &e); err != nil && !strings.HasPrefix(line, `{"error"`) {
				t.Fatalf("the thread has %q: %v", line, err)
			}
		}
		for _, name := range []string{"s1", "s2"} {
			w := do("GET", "/v1/stream/"+name, "", nil)
			var all []json.RawMessage
			if w.Code == 200 && w.Header().Get("Content-Type") == "application/json" &&
				json.Unmarshal(w.Body.Bytes(), &all) != nil {
				t.Fatalf("stream %s has %q", name, w.Body)
			}
		}
	})
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }
