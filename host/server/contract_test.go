package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// The contract holds for a thread server by whatever way one comes to it.
func TestContract(t *testing.T) {
	for _, f := range fronts {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, time.Second)
			base, output := f.start(t, u.URL)
			write := writer(t, "t1")
			t.Run("requests", func(t *testing.T) { requests(t, base, write, !f.again) })
			t.Run("long-poll", func(t *testing.T) { longPoll(t, u, base, write) })
			t.Run("pieces", func(t *testing.T) { pieces(t, base) })
			t.Run("streams", func(t *testing.T) { streams(t, u, base) })
			t.Run("gone", func(t *testing.T) { gone(t, u, base) })
			t.Run("authors", func(t *testing.T) { authored(t, base) })
			t.Run("threads", func(t *testing.T) { listed(t, base) })
			t.Run("verbatim", func(t *testing.T) { verbatim(t, base) })
			if log := output.String(); strings.Contains(log, "eyJ") || strings.Contains(log, "Bearer") ||
				strings.Contains(log, "offset=") ||
				strings.Contains(log, "nothing-to-log") {
				t.Errorf("a secret or an entry's text is in the log:\n%s", log)
			} else if f.name != "direct" && !strings.Contains(log, "/arbe-thread-t1") {
				t.Errorf("the requests are not in the log:\n%s", log)
			}
		})
	}
}

// requests is the table: each request with what it must come to. What one appends, the next may find.
func requests(t *testing.T, base, write string, large bool) {
	const p = "/arbe-thread-t1"
	read := mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeRead}})
	renew := mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeRenew}, Run: "r1"})
	big := chat("big", strings.Repeat("x", thread.MaxEntry))
	other := chat("a", "something else")
	for _, tt := range []struct {
		name   string
		call   call
		status int
		bad    string // indexes of the entries that the error lists
		body   string // exactly, but for a line's end
		ids    string // of the entries read
	}{
		{"a thread that was never written", call{method: "GET", path: p + "?offset=0", token: write}, 404, "", "", ""},
		{"one entry", call{method: "POST", path: p, token: write, body: chat("a", "nothing-to-log")}, 200, "", `{"nextOffset":"00000000000000000001","appended":1,"duplicates":0}`, ""},
		{"an array", call{method: "POST", path: p, token: write, body: "[" + chat("b", "x") + "," + chat("c", "é\u2028\\") + "]"}, 200, "", `{"nextOffset":"00000000000000000003","appended":2,"duplicates":0}`, ""},
		{"a duplicate", call{method: "POST", path: p, token: write, body: chat("a", "nothing-to-log")}, 200, "", `{"nextOffset":"00000000000000000003","appended":0,"duplicates":1}`, ""},
		{"a conflict", call{method: "POST", path: p, token: write, body: "[" + chat("d", "x") + "," + other + "]"}, 409, "1", "", ""},
		{"bad entries", call{method: "POST", path: p, token: write, body: "[7," + chat("d", "x") + "," + chat("e f", "x") + "]"}, 400, "0 2", "", ""},
		{"no JSON", call{method: "POST", path: p, token: write, body: "{"}, 400, "", "", ""},
		{"nothing", call{method: "POST", path: p, token: write}, 400, "", "", ""},
		{"a large entry", call{method: "POST", path: p, token: write, body: big}, 413, "0", "", ""},
		{"a large body", call{method: "POST", path: p, token: write, body: "[" + strings.Repeat(" ", thread.MaxBody) + "]"}, 413, "", "", ""},
		{"a form", call{method: "POST", path: p, token: write, body: "a=b", header: []string{"Content-Type", "application/x-www-form-urlencoded"}}, 415, "", "", ""},
		{"no token", call{method: "POST", path: p, body: chat("d", "x")}, 401, "", "", ""},
		{"a bad token", call{method: "GET", path: p, token: "x.y.z"}, 401, "", "", ""},
		{"another thread's token", call{method: "POST", path: p, token: writer(t, "t2"), body: chat("d", "x")}, 403, "", "", ""},
		{"a reader's token", call{method: "POST", path: p, token: read, body: chat("d", "x")}, 403, "", "", ""},
		{"renew", call{method: "POST", path: p + "/token", token: renew}, 200, "", "", ""},
		{"renew with a writer's token", call{method: "POST", path: p + "/token", token: write}, 403, "", "", ""},
		{"from the start", call{method: "GET", path: p + "?offset=0", token: read}, 200, "", "", "a b c"},
		{"from the start, in other words", call{method: "GET", path: p + "?offset=-1", token: read}, 200, "", "", "a b c"},
		{"without an offset", call{method: "GET", path: p, token: read}, 200, "", "", "a b c"},
		{"from an offset", call{method: "GET", path: p + "?offset=00000000000000000001", token: write}, 200, "", "", "b c"},
		{"from the tail", call{method: "GET", path: p + "?offset=now", token: read}, 200, "", "", ""},
		{"from nowhere", call{method: "GET", path: p + "?offset=nowhere", token: read}, 400, "", "", ""},
		{"a wait in vain", call{method: "GET", path: p + "?offset=now&live=long-poll", token: read}, 204, "", "", ""},
		{"no stream's name", call{method: "GET", path: "/other", token: read}, 404, "", "", ""},
		{"from beyond the tail", call{method: "GET", path: p + "?offset=00000000000000000099", token: read}, 400, "", "", ""},
		{"no method", call{method: "PATCH", path: p, token: write, body: "{}"}, 405, "", "", ""},
	} {
		if tt.status == 413 && !large {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			a := tt.call.do(t, base)
			var bad []string
			for _, b := range a.bad {
				bad = append(bad, fmt.Sprint(b.Index))
			}
			if a.status != tt.status || strings.Join(bad, " ") != tt.bad ||
				tt.body != "" && strings.TrimSpace(a.body) != tt.body {
				t.Errorf("got %d %s, want %d with %q listed, %s", a.status, a.body, tt.status, tt.bad, tt.body)
			}
			if a.status >= 400 && a.status != 405 &&
				(a.code == "" || a.header.Get("Content-Type") != "application/json") {
				t.Errorf("the error has no code: %s %s", a.header.Get("Content-Type"), a.body)
			}
			if challenge := a.header.Get("WWW-Authenticate"); (a.status == 401) != (challenge == `Bearer error="invalid_token"`) {
				t.Errorf("%d with WWW-Authenticate %q", a.status, challenge)
			}
			if tt.call.method != "GET" || a.status >= 300 {
				return
			}
			if next, tail := a.header.Get("Stream-Next-Offset"),
				a.header.Get("Stream-Up-To-Date"); next != "00000000000000000003" ||
				tail != "true" {
				t.Errorf("next %q, up to date %q", next, tail)
			}
			if kind := a.header.Get("Content-Type"); a.status == 200 &&
				(kind != "application/x-ndjson" || ids(t, a.body) != tt.ids) {
				t.Errorf("%s, %s", kind, a.body)
			}
		})
	}
	var fresh struct{ JWT, ExpiresAt string }
	a := call{method: "POST", path: p + "/token", token: renew}.do(t, base)
	if err := json.Unmarshal([]byte(a.body), &fresh); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	if a := (call{method: "POST", path: p, token: fresh.JWT, body: line("", "pi:s:1")}).do(t, base); a.status != 200 {
		t.Errorf("with the fresh token: %+v", a)
	}
	// A body of unannounced length is accepted, within the limit.
	for body, want := range map[string]int{
		chat("f", strings.Repeat("x", 1<<20)):       200,
		strings.Repeat(" ", thread.MaxBody+1<<20+1): 413,
	} {
		if want == 413 && !large {
			continue
		}
		req := call{method: "POST", path: p, token: write}.request(t.Context(), t, base)
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), -1
		resp, err := httpClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != want {
			t.Errorf("%d bytes in pieces: %d %s, %v, want %d", len(body), resp.StatusCode, b, err, want)
		}
	}
}

// longPoll waits for what is posted while it waits.
func longPoll(t *testing.T, u *upstream, base, token string) {
	const p = "/arbe-thread-t1"
	next := call{method: "GET", path: p + "?offset=now", token: token}.do(t, base).header.Get("Stream-Next-Offset")
	for len(u.waits) > 0 {
		<-u.waits
	}
	got := make(chan answer, 1)
	go func() {
		for { // a wait that ends with nothing is made again, as clients do
			if a := (call{method: "GET", path: p + "?live=long-poll&offset=" + next, token: token}).do(t,
				base); a.status != 204 {
				got <- a
				return
			}
		}
	}()
	<-u.waits
	if a := (call{method: "POST", path: p, token: token, body: chat("g", "x")}).do(t, base); a.status != 200 {
		t.Errorf("got %+v", a)
	}
	if a := <-got; a.status != 200 || ids(t, a.body) != "g" || a.header.Get("Stream-Next-Offset") <= next {
		t.Errorf("got %+v", a)
	}
}

// streams sees that bytes go through as they come, either way.
func streams(t *testing.T, u *upstream, base string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := httpClient.Do(call{method: "GET", path: "/odd/slow"}.request(ctx, t, base))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); line != "first\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	u.more <- struct{}{} // only now is there more
	if rest, err := io.ReadAll(lines); string(rest) != "last\n" || err != nil {
		t.Errorf("got %q, %v", rest, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}

	body, feed := io.Pipe()
	req := call{method: "POST", path: "/odd/upload"}.request(ctx, t, base)
	req.Body, req.ContentLength = body, -1
	done := make(chan error, 1)
	go func() {
		resp, err := httpClient.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		done <- err
	}()
	for _, piece := range []string{"first", "last."} {
		if _, err := io.WriteString(feed, piece); err != nil {
			t.Fatal(err)
		}
		if got := <-u.seen; got != piece {
			t.Errorf("got %q, want %q", got, piece)
		}
	}
	if err := feed.Close(); err != nil {
		t.Error(err)
	}
	if got := <-u.seen; got != "EOF" {
		t.Errorf("the upload ended with %q", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}

	// An answer that breaks off is not to be taken for a whole one.
	for _, path := range []string{"/odd/broken", "/odd/broken-length"} {
		resp, err := httpClient.Do(call{method: "GET", path: path}.request(ctx, t, base))
		if err != nil {
			continue // it was known to be broken before it was passed on
		}
		if b, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: a broken answer is whole: %q", path, b)
		}
		_ = resp.Body.Close() // it is broken
	}
}

// gone sees that a request is ended for the upstream, too, when its client goes away.
func gone(t *testing.T, u *upstream, base string) {
	for len(u.waits) > 0 {
		<-u.waits
	}
	for _, path := range []string{"/odd/hang", "/odd/sse"} {
		ctx, cancel := context.WithCancel(t.Context())
		begun := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			resp, err := httpClient.Do(call{method: "GET", path: path}.request(ctx, t, base))
			if err != nil {
				return // it went away before there was an answer
			}
			defer resp.Body.Close()
			if _, err := io.ReadFull(resp.Body, make([]byte, 9)); err != nil {
				t.Error(err)
			}
			close(begun)
			_, _ = io.Copy(io.Discard, resp.Body) // ends with ctx
		}()
		select {
		case <-u.waits:
		case <-begun:
		}
		cancel()
		select {
		case <-u.gone:
		case <-time.After(patience):
			t.Errorf("%s: the upstream did not see the end", path)
		}
		<-done
	}
}

// verbatim sees that what is sent comes out as it was, but for what concerns one connection only.
func verbatim(t *testing.T, base string) {
	for _, path := range []string{
		"", "?", "/", "//", "/a%2Fb//c;d=1,e/", "/!$&'()*+,;=:@-._~/%7E%41", "/%C3%A9", "/...", "/.a/..b",
		"?offset=0&offset=now", "?a=%zz&&b;c=d&=", "?q=a+b%20c&u=http://x/y?z=/../", "?!$()*,:@-._~=",
	} {
		var got seenRequest
		a := call{method: "POST", path: "/odd/echo" + path, token: "eyJ", body: "a\x00b\r\n\xff"}.do(t, base)
		if err := json.Unmarshal([]byte(a.body), &got); err != nil {
			t.Fatalf("%s: %v in %d %s", path, err, a.status, a.body)
		}
		if got.Method != "POST" || got.URI != "/api/stream/odd/echo"+path || got.Body != "a\x00b\r\n\ufffd" ||
			got.Header.Get("Authorization") != "Bearer eyJ" {
			t.Errorf("%s: got %+v", path, got)
		}
		if got := strings.Join(a.header.Values("X-Twice"), ","); strings.ReplaceAll(got, " ", "") != "a,b" {
			t.Errorf("X-Twice is %q", got)
		}
	}
	if a := (call{method: "POST", path: "/odd/redirect", body: "x"}).do(t, base); a.status != 307 ||
		!strings.HasSuffix(a.header.Get("Location"), "/odd/echo") {
		t.Errorf("a redirect: %+v", a)
	}
	for _, encoding := range []string{"", "gzip"} {
		c := call{method: "GET", path: "/odd/gzip"}
		if encoding != "" {
			c.header = []string{"Accept-Encoding", encoding}
		}
		if a := c.do(t, base); a.status != 200 || a.body != "as it is" {
			t.Errorf("Accept-Encoding %q: %+v", encoding, a)
		}
	}
	if a := (call{method: "PATCH", path: "/odd/teapot"}).do(t, base); a.status != 418 {
		t.Errorf("got %+v", a)
	}
	if a := (call{method: "HEAD", path: "/odd/echo"}).do(t, base); a.status != 200 || a.body != "" {
		t.Errorf("HEAD: %+v", a)
	}
}

// What the ways that are not the server itself have in common.
func TestFronts(t *testing.T) {
	for _, f := range fronts[1:] {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, time.Second)
			base, _ := f.start(t, u.URL)
			t.Run("headers", func(t *testing.T) { hopByHop(t, u, base) })
			t.Run("paths", func(t *testing.T) { confined(t, u, base) })
			t.Run("smuggling", func(t *testing.T) { smuggling(t, u, base) })
			u.Close()
			if a := (call{method: "GET", path: "/arbe-thread-t1", token: "x"}).do(t, base); a.status != 502 ||
				a.code != "upstream_unreachable" ||
				a.header.Get("Content-Type") != "application/json" {
				t.Errorf("without an upstream: %+v", a)
			}
		})
	}
}

func hopByHop(t *testing.T, u *upstream, base string) {
	a := call{method: "POST", path: "/odd/echo", body: "{}", header: []string{
		"Connection", "close, X-Mine", "X-Mine", "1", "Keep-Alive", "timeout=5", "Te", "trailers", "Upgrade", "h2c",
		"Proxy-Authorization", "Basic eDp5", "Forwarded", "for=1.2.3.4", "X-Forwarded-For", "1.2.3.4",
	}}.do(t, base)
	var got seenRequest
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		t.Fatalf("%v in %d %s", err, a.status, a.body)
	}
	for name := range got.Header {
		switch name {
		case "Content-Length",
			"Content-Type",
			"User-Agent",
			"Accept-Encoding",
			"Accept",
			"Accept-Language": // fetch accepts any
		default:
			t.Errorf("the upstream got %s: %q", name, got.Header[name])
		}
	}
	if "http://"+got.Host != u.URL {
		t.Errorf("the upstream is called %s", got.Host)
	}
	for _, name := range []string{"X-Hop", "Keep-Alive"} {
		if v := a.header.Get(name); v != "" {
			t.Errorf("the client got %s: %s", name, v)
		}
	}
	if got := got.Header.Get("Accept-Encoding"); got != "" && got != "identity" {
		t.Errorf("Accept-Encoding %q was made up", got)
	}
}

// confined sees that nothing but what is below the upstream's base can be asked for.
func confined(t *testing.T, u *upstream, base string) {
	before := u.odd.Load()
	for _, path := range []string{
		"/../../odd", "/..", "/.", "/odd/../odd/echo", "/%2e%2E/x", "/.%2e", "/odd/%2e",
		"/odd/..?x", "/odd/..%2fx", "/odd%2F.%2E%2fx", "/odd/..%5cx",
	} {
		if a := (call{method: "GET", path: path, token: "x"}).do(t, base); a.status != 400 || a.code != "path" {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if n := u.odd.Load() - before; n != 0 {
		t.Errorf("%d came through", n)
	}
	at, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	root, _, _ := strings.Cut(at.Path, "/api/stream")
	if a := (call{method: "GET", path: root + "/healthz"}).do(t, "http://"+at.Host); a.status != 200 ||
		a.body != "ok\n" {
		t.Errorf("healthz: %+v", a)
	}
}

// smuggling sees that there are never more requests for the upstream than there are for the front.
func smuggling(t *testing.T, u *upstream, base string) {
	at, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	// CASE is the end of the request line, by which the upstream distinguishes the cases.
	inner := "GET " + at.Path + "/odd/echo?case=CASE HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, header := range map[string]string{
		"both lengths": "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"both, the other way": fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n0\r\n\r\n%s",
			5+len(inner), inner),
		"two lengths":            fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n\r\n%s", len(inner), inner),
		"an odd length":          fmt.Sprintf("Content-Length: +%d\r\n\r\n%s", len(inner), inner),
		"a list of lengths":      fmt.Sprintf("Content-Length: 0, %d\r\n\r\n%s", len(inner), inner),
		"an odd encoding":        "Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n" + inner,
		"a blank before a colon": "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + inner,
		"a folded header":        "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + inner,
		"a tab":                  "Transfer-Encoding:\tchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + inner,
		"two encodings":          "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + inner,
		"a bare line feed":       "X: y\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + inner,
		"a chunk's extension":    "Transfer-Encoding: chunked\r\n\r\n0;a=\"\n\"\r\n\r\n" + inner,
		"a connection's length": fmt.Sprintf("Connection: Content-Length\r\nContent-Length: %d\r\n\r\n%s", len(inner),
			inner),
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		all := "POST " + at.Path + "/odd/echo?case=CASE HTTP/1.1\r\nHost: x\r\n" + header +
			"GET " + at.Path + "/odd/echo?case=CASE HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
		key := fmt.Sprintf("%04d", cases) // as long as what it stands for
		cases++
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		_, writeErr := io.WriteString(conn, strings.ReplaceAll(all, "CASE", key))
		answers, readErr := io.ReadAll(conn) // it may well be broken off
		var n int64
		if count, ok := u.cases.Load(key); ok {
			n = count.(*atomic.Int64).Load()
		}
		if got := strings.Count(string(answers), "HTTP/1.1 "); n > int64(got) {
			t.Errorf(
				"%s: %d requests for the upstream, %d answers (%v, %v):\n%s",
				name,
				n,
				got,
				writeErr,
				readErr,
				answers,
			)
		}
		var ne net.Error
		if errors.As(readErr, &ne) && ne.Timeout() {
			t.Errorf("%s: neither an answer nor an end:\n%s", name, answers)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
