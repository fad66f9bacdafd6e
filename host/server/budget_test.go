package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/server/streams"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// besieged is a server with a budget of 32 MiB.
type besieged struct {
	t testing.TB
	*Server
	url string
}

func besiege(t testing.TB) *besieged {
	e, err := pebble.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := &Server{
		Log: log.New(
			e,
		), Secrets: [][]byte{bytes.Repeat([]byte("s"), token.MinSecret)}, LongPoll: time.Minute, Closing: ctx,
		Budget: memory.NewBudget(32 << 20),
		Logger: slog.New(slog.DiscardHandler),
	}
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		stop()
		srv.CloseClientConnections()
		srv.Close()
		if err := s.Log.Close(); err != nil {
			t.Error(err)
		}
	})
	return &besieged{t, s, srv.URL}
}

func (b *besieged) token(g token.Grant) string {
	g.Scope, g.Until = []string{token.ScopeWrite}, time.Now().Add(time.Hour)
	token, err := token.Sign(b.Secrets[0], g)
	if err != nil {
		b.t.Fatal(err)
	}
	return token
}

// send begins a request on a connection of its own.
func (b *besieged) send(method, path, token, header, body string) net.Conn {
	b.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	go func() { // what the server does not read stays with it
		_, _ = fmt.Fprintf(
			c,
			"%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n%s",
			method,
			path,
			token,
			header,
			body,
		)
	}()
	return c
}

// ask sends a whole request and returns the status and the body.
func (b *besieged) ask(method, path, token, kind, body string) (int, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(got)
}

// honest posts an entry and reads it.
func (b *besieged) honest(id string) {
	b.t.Helper()
	token := b.token(token.Grant{Stream: thread.StreamName("honest")})
	entry := fmt.Sprintf(`{"id":%q,"ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":"x"}}`, id)
	if status, body := b.ask("POST", "/api/stream/arbe-thread-honest", token, "application/json",
		entry); status != http.StatusOK {
		b.t.Errorf("an honest post: %d %s", status, body)
	}
	if status, body := b.ask("GET", "/api/stream/arbe-thread-honest?offset=0", token, "application/json",
		""); status != http.StatusOK || !strings.Contains(body, id) {
		b.t.Errorf("an honest read: %d %s", status, body)
	}
	if held := b.Budget.Held(); held > b.Budget.Size() {
		b.t.Errorf("%d bytes are held, of %d", held, b.Budget.Size())
	}
}

// until waits for a condition that the server brings about.
func (b *besieged) until(what string, f func() bool) {
	b.t.Helper()
	for began := time.Now(); !f(); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			b.t.Fatalf("not %s after a minute; %d bytes are held", what, b.Budget.Held())
		}
	}
}

// Unfinished posts are charged for what has arrived, at most the budget, across tokens. Other requests succeed.
func TestUnfinishedPosts(t *testing.T) {
	b := besiege(t)
	refused := make(chan string, 64)
	for i := range 48 {
		who := i
		if i < 16 {
			who = 0 // one token's
		}
		c := b.send(
			"POST",
			fmt.Sprint("/api/stream/arbe-thread-h", who),
			b.token(token.Grant{Stream: thread.StreamName(fmt.Sprint("h", who))}),
			"Content-Type: application/json\r\nContent-Length: 60000000\r\n",
			strings.Repeat(" ", 4<<20),
		)
		go func() {
			var answer [12]byte
			if _, err := io.ReadFull(c, answer[:]); err == nil {
				refused <- string(answer[9:])
			}
		}()
	}
	for seen := map[string]int{}; seen["503"] == 0 || seen["429"] == 0; {
		select {
		case status := <-refused:
			seen[status]++
			if status != "503" && status != "429" {
				t.Fatalf("one was answered %s", status)
			}
		case <-time.After(patience):
			t.Fatalf("refused were %v", seen)
		}
		b.honest("a")
	}
}

// Readers of large records who take nothing hold what was read for them, up to the budget. Others get through.
func TestLargeSlowReaders(t *testing.T) {
	b := besiege(t)
	text := strings.Repeat("x", thread.MaxEntry-1000)
	for i := range 8 {
		token := b.token(token.Grant{Stream: fmt.Sprint("s", i)})
		if status, body := b.ask("PUT", fmt.Sprint("/v1/stream/s", i), token, request.JSON,
			`"`+text+`"`); status != http.StatusCreated {
			t.Fatalf("%d %s", status, body)
		}
	}
	for i := range 64 {
		token := b.token(token.Grant{Stream: fmt.Sprint("s", i%8)})
		c := b.send("GET", fmt.Sprintf("/v1/stream/s%d?offset=-1", i%8), token, "", "")
		if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
	}
	b.until("full", func() bool { return b.Budget.Held() >= 16<<20 })
	b.honest("a")
}

// An event of line ends is six times as long as they are, and is not held.
func TestLargeEventOfNewlines(t *testing.T) {
	b := besiege(t)
	token := b.token(token.Grant{Stream: "s"})
	if status, body := b.ask("PUT", "/v1/stream/s", token, "text/plain", strings.Repeat("\n",
		8<<20)); status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	ctx, stop := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, "GET", "/v1/stream/s?offset=-1&live=sse", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	w := &discard{header: http.Header{}, enough: 6 * 8 << 20, stop: stop}
	h := b.handler()
	if took := allocatedBy(func() { h.ServeHTTP(w, r) }); took > 30<<20 {
		t.Errorf("%d bytes were allocated", took)
	}
	if w.n < w.enough {
		t.Errorf("%d bytes were sent", w.n)
	}
}

// discard is an answer that nobody keeps.
type discard struct {
	header    http.Header
	n, enough int
	stop      func()
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(int)     {}
func (d *discard) Flush()              {}
func (d *discard) Write(b []byte) (int, error) {
	if d.n += len(b); d.n >= d.enough {
		d.stop()
	}
	return len(b), nil
}

// What a fork copies is bounded, whatever is behind its offset.
func TestForkOffsetBound(t *testing.T) {
	b := besiege(t)
	signed := b.token(token.Grant{Stream: "s"})
	body := "[" + strings.TrimSuffix(strings.Repeat("1,", log.MaxMessages), ",") + "]"
	for _, method := range []string{"PUT", "POST"} {
		if status, got := b.ask(method, "/v1/stream/s", signed, request.JSON, body); status >= 300 {
			t.Fatalf("%d %s", status, got)
		}
	}
	for sub, want := range map[int]int{1: http.StatusCreated, log.MaxMessages: http.StatusCreated, log.MaxMessages +
		1: http.StatusBadRequest, 1 << 40: http.StatusBadRequest} {
		name := fmt.Sprint("f", sub)
		r := httptest.NewRequest("PUT", streams.Root+name, nil)
		for k, v := range map[string]string{
			"Authorization":          "Bearer " + b.token(token.Grant{Stream: name}),
			request.HeaderForkToken:  "Bearer " + signed,
			request.HeaderForkedFrom: streams.Root + "s",
			request.HeaderForkOffset: request.Offset(0), request.HeaderForkSub: fmt.Sprint(sub),
		} {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		b.handler().ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%d: got %d %s, want %d", sub, w.Code, w.Body, want)
		}
	}
}

// allocatedBy returns how many bytes f allocates: more than it ever holds.
func allocatedBy(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
