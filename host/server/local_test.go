package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A server without tokens answers pages of this machine only, whatever they ask for.
func TestOpenIsLocal(t *testing.T) {
	b := besiege(t)
	b.Insecure = true
	h := b.handler()
	ask := func(method, host string, header ...string) int {
		r := httptest.NewRequest(method, "/v1/stream/s", strings.NewReader("<script>"))
		r.Host = host
		r.Header.Set("Content-Type", "text/html")
		for i := 0; i < len(header); i += 2 {
			r.Header.Add(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code < 300 && w.Header().Get("Content-Security-Policy") != "sandbox" {
			t.Errorf("%s %s: Content-Security-Policy %q", method, host, w.Header().Get("Content-Security-Policy"))
		}
		return w.Code
	}
	if got := ask("PUT", "127.0.0.1:8787"); got != http.StatusCreated {
		t.Fatalf("got %d", got)
	}
	for _, host := range []string{
		"localhost", "LOCALHOST:80", "localhost.:80", "app.localhost:80", "127.0.0.1",
		"127.9.9.9:1", "[::1]:80", "[::1]", "[::ffff:127.0.0.1]:80",
	} {
		for _, origin := range []string{"http://localhost:3000", "http://127.0.0.1:5173", "https://[::1]"} {
			if got := ask("GET", host, "Origin", origin, "Sec-Fetch-Site", "same-site"); got != http.StatusOK {
				t.Errorf("%s from %s: got %d", host, origin, got)
			}
		}
	}
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"} {
		for _, host := range []string{
			"evil.example", "evil.example:8787", "127.0.0.1.evil.example",
			"localhost.evil.example", "192.0.2.1", "0.0.0.0:8787", "",
		} {
			if got := ask(method, host); got != http.StatusForbidden {
				t.Errorf("%s for %q: got %d", method, host, got)
			}
		}
		if method == "OPTIONS" {
			continue // a preflight is answered, and what follows it is refused
		}
		for _, origin := range []string{
			"https://evil.example", "null", "file://", "http://localhost.evil.example",
			"http://127.0.0.1@evil.example", "",
		} {
			if got := ask(method, "127.0.0.1:8787", "Origin", origin); got != http.StatusForbidden {
				t.Errorf("%s from %q: got %d", method, origin, got)
			}
		}
		if got := ask(method, "127.0.0.1:8787", "Origin", "http://localhost", "Origin",
			"https://evil.example"); got != http.StatusForbidden {
			t.Errorf("%s with two origins: got %d", method, got)
		}
		if got := ask(method, "127.0.0.1:8787", "Sec-Fetch-Site", "cross-site"); got != http.StatusForbidden {
			t.Errorf("%s across sites: got %d", method, got)
		}
	}
}
