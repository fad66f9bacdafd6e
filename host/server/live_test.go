package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/openfiles"
	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/thread"
)

// events reads a thread's events.
type events struct {
	t     *testing.T
	resp  *http.Response
	lines *bufio.Scanner
	next  string // the offset of the last control event
}

func listen(t *testing.T, ctx context.Context, url, token string, header ...string) *events {
	t.Helper()
	return listenBy(t, ctx, httpClient, url, token, header...)
}

func listenBy(t *testing.T, ctx context.Context, client *http.Client, url, token string, header ...string) *events {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() }) // it may have been closed
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || kind != "text/event-stream" {
		t.Fatalf("%s, %s", resp.Status, kind)
	}
	e := &events{t: t, resp: resp, lines: bufio.NewScanner(resp.Body)}
	e.lines.Buffer(nil, 16<<20)
	return e
}

// until reads events until the entry with this id has come, and what belongs to it, and returns the ids that came. "":
// until the tail.
func (e *events) until(id string) string {
	e.t.Helper()
	var ids []string
	kind := ""
	for e.lines.Scan() {
		name, value, _ := strings.Cut(e.lines.Text(), ":")
		switch {
		case name == "event":
			kind = strings.TrimSpace(value)
		case name == "data" && kind == "data":
			var entries []thread.Entry
			if err := json.Unmarshal([]byte(value), &entries); err != nil {
				e.t.Fatalf("%v in %.200s", err, value)
			}
			for _, entry := range entries {
				if entry.Received().IsZero() {
					e.t.Errorf("entry %s does not say when it was received", entry.ID)
				}
				ids = append(ids, entry.ID)
			}
		case name == "data" && kind == "control":
			var c struct {
				StreamNextOffset string
				UpToDate         bool
			}
			if err := json.Unmarshal([]byte(value), &c); err != nil || c.StreamNextOffset <= e.next && len(ids) > 0 {
				e.t.Fatalf("%v in %s after %s", err, value, e.next)
			}
			e.next = c.StreamNextOffset
			if id == "" && c.UpToDate || len(ids) > 0 && ids[len(ids)-1] == id {
				return strings.Join(ids, " ")
			}
		}
	}
	e.t.Fatalf("the events ended with %v after %v", e.lines.Err(), ids)
	return ""
}

// Entries arrive as events, present and new ones. A reader that reconnects continues from the last offset that it
// received.
func TestEvents(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := serveOn(t, open(t), func(*server.Server) {}) + "/api/stream"
			token := writer(t, "t1")
			post := func(id string) {
				t.Helper()
				if a := (call{method: "POST", path: "/arbe-thread-t1", token: token, body: chat(id, "x\ny")}).do(t,
					base); a.status != 200 {
					t.Fatalf("got %+v", a)
				}
			}
			post("a")
			post("b")
			const p = "/arbe-thread-t1?live=sse&offset="
			first := listen(t, t.Context(), base+p+"0", token)
			if got := first.until(""); got != "a b" {
				t.Errorf("got %q", got)
			}
			second := listen(t, t.Context(), base+p+"now", token)
			second.until("")
			post("c")
			if a, b := first.until("c"), second.until("c"); a != "c" || b != "c" {
				t.Errorf("got %q and %q", a, b)
			}
			if err := first.resp.Body.Close(); err != nil {
				t.Error(err)
			}
			post("d")
			if got := listen(t, t.Context(), base+p+first.next, token).until(""); got != "d" {
				t.Errorf("from %s: %q", first.next, got)
			}
			if got := listen(t, t.Context(), base+"/arbe-thread-t1?live=sse", token).until(""); got != "a b c d" {
				t.Errorf("without an offset: %q", got)
			}
			// As a browser that reconnects.
			if got := listen(t, t.Context(), base+p+"0", token, "Last-Event-ID", first.next).until(""); got != "d" {
				t.Errorf("after event %s: %q", first.next, got)
			}
			for path, want := range map[string]int{p + "7": 400, "/arbe-thread-t1?live=pigeon&offset=0": 400} {
				if a := (call{method: "GET", path: path, token: token}).do(t, base); a.status != want {
					t.Errorf("%s: %+v", path, a)
				}
			}
			if a := (call{method: "GET", path: "/arbe-thread-t9?live=sse&offset=0", token: writer(t, "t9")}).do(t,
				base); a.status != 404 {
				t.Errorf("a thread that is not there: %+v", a)
			}
		})
	}
}

// A reader that accepts no data is disconnected, delays no one else, and continues from its offset.
func TestLargeSlowReader(t *testing.T) {
	dropped := make(chan struct{})
	base := serveBehind(
		t,
		engines["pebble"](t),
		func(s *server.Server) { s.WriteTimeout = 10 * time.Second },
		func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("User-Agent") == "slow" {
					defer close(dropped)
				}
				h.ServeHTTP(w, r)
			})
		},
	) + "/api/stream"
	token := writer(t, "t1")
	const p = "/arbe-thread-t1?live=sse&offset="
	post := func(id string, size int) {
		t.Helper()
		if a := (call{
			method: "POST", path: "/arbe-thread-t1", token: token,
			body: chat(id, strings.Repeat("x", size)),
		}).do(t, base); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	post("first", 1)
	narrow := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return conn, conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	}}
	slow, quick := listenBy(
		t,
		t.Context(),
		&http.Client{Transport: named{narrow, "slow"}},
		base+p+"0",
		token,
	), listen(
		t,
		t.Context(),
		base+p+"0",
		token,
	)
	slow.until("")
	var want []string
	for i := range 20 { // more than the connection takes
		id := fmt.Sprint("e", i)
		post(id, 1<<20)
		want = append(want, id)
		if got := quick.until(id); !strings.HasSuffix(got, id) {
			t.Fatalf("the quick one got %q", got)
		}
	}
	select {
	case <-dropped:
	case <-time.After(patience):
		t.Fatal("the slow one is waited for")
	}
	var got []string
	for {
		ended := false
		func() {
			kind := ""
			for slow.lines.Scan() { // what was on its way
				name, value, _ := strings.Cut(slow.lines.Text(), ":")
				if name == "event" {
					kind = strings.TrimSpace(value)
				}
				if name == "data" && kind == "data" {
					var entries []thread.Entry
					if json.Unmarshal([]byte(value), &entries) != nil {
						return // cut off in the middle
					}
					for _, e := range entries {
						got = append(got, e.ID)
					}
				}
				if name == "data" && kind == "control" {
					var c struct{ StreamNextOffset string }
					if err := json.Unmarshal([]byte(value), &c); err != nil {
						t.Fatal(err)
					}
					slow.next = c.StreamNextOffset
				}
			}
			ended = true
		}()
		if ended || slow.lines.Err() != nil {
			break
		}
	}
	if len(got) >= len(want) {
		t.Fatalf("the slow one was waited for: it got all %d", len(got))
	}
	again := listen(t, t.Context(), base+p+slow.next, token)
	rest := strings.Fields(again.until("e19"))
	if all := append(got[:len(want)-len(rest)], rest...); strings.Join(all, " ") != strings.Join(want, " ") {
		t.Errorf("got %v and then %v", got, rest)
	}
}

// named gives requests a user agent.
type named struct {
	http.RoundTripper
	name string
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", n.name)
	return n.RoundTripper.RoundTrip(r)
}

// Many readers wait at the same time, each on a connection of its own, and all receive each entry. make bench has
// 10,000 of them. A server keeps some of the files that it may have open for other than connections.
func TestIdleReaders(t *testing.T) {
	readers := min(500, openfiles.Limit()/4)
	if n := os.Getenv("ARBE_READERS"); n != "" {
		var err error
		if readers, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
	}
	const threads = 100
	s := startServer(t, "pebble")
	posts := make([]*benchWriter, threads)
	for i := range posts {
		posts[i] = newWriter(t, s.url)
		if _, err := posts[i].request(head(t, "POST", i), []byte(chat("first", "x"))); err != nil {
			t.Fatal(err)
		}
	}
	before, began := s.rss(t), time.Now()
	listeners := make([]*benchWriter, readers)
	for i := range listeners {
		listeners[i] = newWriter(t, s.url)
		listeners[i].in = bufio.NewReaderSize(listeners[i].conn, 1<<10)
		if err := listeners[i].listen(strings.Replace(head(t, "GET", i%threads), " HTTP", "?live=sse&offset=now HTTP",
			1)); err != nil {
			t.Fatalf("reader %d: %v", i, err)
		}
	}
	t.Logf(
		"%d readers came in %v, and cost %.1f KiB each",
		readers,
		time.Since(began).Round(time.Millisecond),
		(s.rss(t)-before)*1024/float64(readers),
	)
	began = time.Now()
	for i := range posts {
		if _, err := posts[i].request(head(t, "POST", i), []byte(chat("second", "x"))); err != nil {
			t.Fatal(err)
		}
	}
	for i, l := range listeners {
		if err := l.await("second"); err != nil {
			t.Fatalf("reader %d: %v", i, err)
		}
	}
	t.Logf("all had the %d new entries after %v", threads, time.Since(began).Round(time.Millisecond))
}

// A server that ends lets those who listen go, cleanly.
func TestServeEndsEvents(t *testing.T) {
	data := daemon.Data(t.TempDir())
	url, stop := serve(t, daemon.Config{Addr: "127.0.0.1:0", Data: data, LongPoll: time.Minute})
	keys, err := data.Secrets()
	if err != nil {
		t.Fatal(err)
	}
	token, err := token.Sign(
		keys[0],
		token.Grant{
			Stream: thread.StreamName("t1"),
			Scope:  []string{token.ScopeWrite},
			Until:  time.Now().Add(time.Hour),
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	if a := (call{method: "POST", path: "/arbe-thread-t1", token: token, body: chat("a", "x")}).do(t,
		url+"/api/stream"); a.status != 200 {
		t.Fatalf("got %+v", a)
	}
	e := listen(t, t.Context(), url+"/api/stream/arbe-thread-t1?live=sse&offset=0", token)
	e.until("")
	began := time.Now()
	if err := stop(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	for e.lines.Scan() {
	}
	if err := e.lines.Err(); err != nil || time.Since(began) >= 10*time.Second { // what serve gives requests to end
		t.Errorf("the events ended after %v with %v", time.Since(began), err)
	}
}

// Several servers share one cluster: readers of one receive what was posted to another, and ids are unique across all.
func TestServersOnOneCluster(t *testing.T) {
	s, err := natsserver.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natsserver.Stop(s) })
	var bases []string
	for range 3 {
		e, err := jetstream.Open(
			t.Context(),
			jetstream.Config{URL: s.ClientURL(), Shards: 4, Replicas: 1, AllowUnsafe: true, Logger: quiet},
		)
		if err != nil {
			t.Fatal(err)
		}
		bases = append(bases, serveOn(t, e, func(*server.Server) {})+"/api/stream")
	}
	token := writer(t, "t1")
	post := func(base, body string) answer {
		return call{method: "POST", path: "/arbe-thread-t1", token: token, body: body}.do(t, base)
	}
	if a := post(bases[0], chat("first", "x")); a.status != 200 {
		t.Fatalf("got %+v", a)
	}
	far := listen(t, t.Context(), bases[1]+"/arbe-thread-t1?live=sse&offset=0", token)
	far.until("")
	const each = 40
	var all sync.WaitGroup
	for w := range bases {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range each { // each entry is posted by all of them, and one more by each
				if a := post(bases[w], "["+chat(fmt.Sprint("same", i), "x")+","+
					chat(fmt.Sprintf("own%d.%d", w, i), "x")+"]"); a.status != 200 {
					t.Errorf("got %+v", a)
				}
			}
		}()
	}
	all.Wait()
	if a := post(bases[2], chat("same0", "another")); a.status != 409 {
		t.Errorf("another payload: %+v", a)
	}
	if a := post(bases[0], chat("last", "x")); a.status != 200 {
		t.Errorf("got %+v", a)
	}
	want := ids(t, call{method: "GET", path: "/arbe-thread-t1", token: token}.do(t, bases[2]).body)
	if got := "first " + far.until("last"); got != want {
		t.Errorf("the listener got\n%s\nthe thread is\n%s", got, want)
	}
	seen, next := map[string]int{}, [3]int{}
	for _, id := range strings.Fields(want) {
		seen[id]++
		var w, i int
		if n, _ := fmt.Sscanf(id, "own%d.%d", &w, &i); n == 2 {
			if i != next[w] {
				t.Errorf("%s where %d was due", id, next[w])
			}
			next[w]++
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s is there %d times", id, n)
		}
	}
	if len(seen) != each*4+2 {
		t.Errorf("%d entries, want %d", len(seen), each*4+2)
	}
}

// With few file descriptors left, connections are closed, not the log: it takes appends while more clients connect than
// there are descriptors.
func TestLargeLogOnFewDescriptors(t *testing.T) {
	s := startServerBy(t, "pebble", exec.Command("sh", "-c", `ulimit -n 256 && exec "$0"`, os.Args[0]))
	post := newWriter(t, s.url)
	for range 400 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "GET /") // it may be closed already
	}
	text := strings.Repeat("x", 1<<20)
	for i := range 250 { // the log begins new files on the way
		if _, err := post.request(head(t, "POST", 0), []byte(chat(fmt.Sprint("e", i), text))); err != nil {
			t.Fatalf("post %d: %v", i, err)
		}
	}
}
