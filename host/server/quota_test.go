package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// A token is one caller, however it is written, and so is a fresh one for the same thread and run.
func TestCallers(t *testing.T) {
	b := besiege(t)
	p := request.NewLimiter(1, 1)
	by := func(token, from string) request.Caller {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = from
		r.Header.Set("Authorization", "Bearer "+token)
		return p.Caller(r, b.core.Holder)
	}
	const here, there = "192.0.2.1:1", "192.0.2.2:1"
	first := b.token(token.Grant{Stream: thread.StreamName("t1"), Run: "r1"})
	again, err := token.Sign(b.Secrets[0], token.Grant{
		Stream: thread.StreamName("t1"), Run: "r1", Scope: []string{token.ScopeWrite},
		Until: time.Now().Add(2 * time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	if first == again || by(first, here) != by(again, there) {
		t.Error("a fresh token is another caller")
	}
	if by(first, here) == by(b.token(token.Grant{Stream: thread.StreamName("t1"), Run: "r2"}), here) || by(first,
		here) == by(b.token(token.Grant{Stream: thread.StreamName("t2"), Run: "r1"}), here) {
		t.Error("tokens of two runs or threads are one caller")
	}
	// The last character of a signature has four bits of it, and two that mean nothing.
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, first[len(first)-1])
	for i := 1; i < 4; i++ {
		spelled := first[:len(first)-1] + string(alphabet[last&^3|(last+i)&3])
		if _, err := b.core.Verify(spelled); err == nil {
			t.Errorf("a signature that ends with %q is taken", spelled[len(spelled)-1:])
		}
		if by(spelled, here) != by("no token at all", here) || by(spelled, here) == by(spelled, there) {
			t.Error("a token that is no good is not its address")
		}
	}
}

// A stream takes no more than its quota, but for small posts at its end. Beyond it is 507. Entries from before the
// quota count.
func TestStreamQuota(t *testing.T) {
	b := besiege(t)
	signed, path := b.token(token.Grant{Stream: "s"}), "/v1/stream/s"
	post := func(size int) int {
		status, _ := b.ask("POST", path, signed, "text/plain", strings.Repeat("x", size))
		return status
	}
	if status,
		body := b.ask("PUT", path, signed, "text/plain", strings.Repeat("x", 1<<20)); status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	b.Log.Quota = 3 << 20
	for i, want := range []int{204, 507, 507} {
		if got := post(1_500_000); got != want {
			t.Errorf("post %d: got %d, want %d", i, got, want)
		}
	}
	small := 0
	for post(60_000) == 204 {
		if small++; small > 100 {
			t.Fatal("small posts have no end")
		}
	}
	if small < 15 || small > 30 {
		t.Errorf("%d small posts are taken at the end", small)
	}
	if status, _ := b.ask("GET", path+"?offset=-1", signed, "", ""); status != http.StatusOK {
		t.Errorf("a read at the quota: %d", status)
	}
	if status, body := b.ask("PUT", "/v1/stream/another", b.token(token.Grant{Stream: "another"}), "text/plain",
		"x"); status != http.StatusCreated {
		t.Errorf("another stream: %d %s", status, body)
	}
}

// One token's holder may post its quota within an hour, and gets 429 beyond it. Another holder has a quota of its own.
func TestLargeTokenQuota(t *testing.T) {
	b := besiege(t)
	b.TokenQuota = 1
	h := b.handler()
	post := func(token string, size int) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/api/stream/arbe-thread-t1", strings.NewReader(fmt.Sprintf(
			`{"id":"pi:s:a","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"pi.line","session":{"id":"s"},"text":%q}}`,
			strings.Repeat("x", size),
		)))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	first := b.token(token.Grant{Stream: thread.StreamName("t1"), Run: "r1"})
	for i, want := range []int{200, 200, 200, 200, 200, 200, 200, 200, 200, 429} { // the least quota is one whole post
		if w := post(first, 7<<20); w.Code != want || w.Code == 429 && w.Header().Get("Retry-After") == "" {
			t.Errorf("post %d: got %d %.200s, want %d", i, w.Code, w.Body, want)
		}
	}
	if w := post(b.token(token.Grant{Stream: thread.StreamName("t1"), Run: "r2"}), 1); w.Code != 409 {
		t.Errorf("another holder: got %d", w.Code)
	}
}
