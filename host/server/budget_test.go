package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

func TestBudget(t *testing.T) {
	const mib = 1 << 20
	type step struct {
		who  string
		grow int
		want error
	}
	for _, tt := range []struct {
		name  string
		steps []step // of the budget of 64 MiB, 8 are for small requests
		held  int64
	}{
		{"small and large", []step{{"a", 1000, nil}, {"b", mib, nil}}, mib + 1000},
		{"one may have three quarters", []step{{"a", 100 * mib, nil}}, 42 * mib},
		{"and leaves the rest to others", []step{{"a", 100 * mib, nil}, {"b", 14 * mib, nil}, {"c", mib, errBusy}, {
			"c",
			200 << 10, nil,
		}}, 56*mib + 200<<10},
		{"a holder's share of what is large", []step{{"a", 7 * mib, nil}, {"a", 7 * mib, nil}, {"a", mib, errShare}, {
			"b",
			7 * mib, nil,
		}}, 21 * mib},
		{"a holder's share of what is small", []step{
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 1, errShare},
			{"b", 1, nil},
		}, 2*mib + 1},
		{"large only when it is alone", []step{{"a", 1, nil}, {"a", 15 * mib, errShare}, {"b", 15 * mib, nil}}, 15*mib + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBudget(64 * mib)
			var all []*lease
			for i, s := range tt.steps {
				l := b.lease(s.who)
				all = append(all, l)
				if err := l.grow(s.grow); !errors.Is(err, s.want) || err != nil && s.want == nil {
					t.Errorf("%d: got %v, want %v", i, err, s.want)
				}
			}
			if got := b.held(); got != tt.held {
				t.Errorf("held %d, want %d", got, tt.held)
			}
			for _, l := range all {
				l.free()
			}
			if got := b.held(); got != 0 || len(b.holders) != 0 {
				t.Errorf("held %d by %d when all is over", got, len(b.holders))
			}
			for _, p := range b.parts {
				if !p.room.TryAcquire(p.size) {
					t.Error("some room is lost")
				}
			}
		})
	}
}

// A request that grows moves from the part of the small ones to the other.
func TestBudgetGrows(t *testing.T) {
	b := newBudget(64 << 20)
	l := b.lease("a")
	for range 32 {
		if err := l.grow(64 << 10); err != nil {
			t.Fatal(err)
		}
	}
	if l.part != large || l.n != 2<<20 || b.held() != 2<<20 || !b.parts[small].room.TryAcquire(b.parts[small].size) {
		t.Errorf("in part %d with %d, held %d", l.part, l.n, b.held())
	}
	l.free()
}

func TestBudgetWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(64 << 20)
		first, second := b.lease("a"), b.lease("b")
		defer second.free()
		if err := first.grow(42 << 20); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := second.wait(t.Context(), 42<<20); !errors.Is(err, errBusy) || time.Since(began) != budgetWait {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		go func() {
			time.Sleep(time.Second)
			first.free()
		}()
		began = time.Now()
		if err := second.wait(t.Context(), 42<<20); err != nil || time.Since(began) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

func TestMemoryLimit(t *testing.T) {
	const machine = "MemTotal:       2048 kB\nMemFree: 1 kB\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing is known", nil, 1 << 30},
		{"the machine", map[string]string{"proc/meminfo": machine}, 2 << 20},
		{"version 2", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "1048576\n",
		}, 1 << 20},
		{"version 2 in a container", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "1048576\n",
		}, 1 << 20},
		{"version 1", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "4:memory:/a\n1:cpu:/b\n0::/c\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1048576\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n",
		}, 1 << 20},
		{"version 1 in a container", map[string]string{
			"proc/self/cgroup":                           "4:cpu,memory:/docker/x\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "4096\n",
		}, 4096},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range tt.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := memoryLimit(root); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	if got := MemoryLimit(); got < 1<<20 || got == math.MaxInt64 {
		t.Errorf("here it is %d", got)
	}
}

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
		Budget: 32 << 20,
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
	if held := b.budget.held(); held > b.Budget {
		b.t.Errorf("%d bytes are held, of %d", held, b.Budget)
	}
}

// until waits for a condition that the server brings about.
func (b *besieged) until(what string, f func() bool) {
	b.t.Helper()
	for began := time.Now(); !f(); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			b.t.Fatalf("not %s after a minute; %d bytes are held", what, b.budget.held())
		}
	}
}

// Posts that do not end hold what has come of them, up to the budget and no further, whoever they are of. Others get
// through.
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
		case <-time.After(time.Minute):
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
		if status, body := b.ask("PUT", fmt.Sprint("/v1/stream/s", i), token, jsonType,
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
	b.until("full", func() bool { return b.budget.held() >= 16<<20 })
	b.honest("a")
}

// An event of line ends is six times as long as they are, and is not held.
func TestEventOfNewlines(t *testing.T) {
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
		if status, got := b.ask(method, "/v1/stream/s", signed, jsonType, body); status >= 300 {
			t.Fatalf("%d %s", status, got)
		}
	}
	for sub, want := range map[int]int{1: http.StatusCreated, log.MaxMessages: http.StatusCreated, log.MaxMessages +
		1: http.StatusBadRequest, 1 << 40: http.StatusBadRequest} {
		name := fmt.Sprint("f", sub)
		r := httptest.NewRequest("PUT", protocolRoot+name, nil)
		for k, v := range map[string]string{
			"Authorization": "Bearer " + b.token(token.Grant{Stream: name}), headerForkToken: "Bearer " + signed,
			headerForkedFrom: protocolRoot + "s",
			headerForkOffset: offset(0), headerForkSub: fmt.Sprint(sub),
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
