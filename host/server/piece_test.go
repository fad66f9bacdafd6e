package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// typed is an entry of a type.
func typed(id, kind string) string {
	return fmt.Sprintf(`{"id":%q,"ts":"2026-01-01T00:00:00.000Z","payload":{"text":"\"type\":\"x\"","type":%q}}`, id, kind)
}

// pieces is the contract of reads in pieces.
func pieces(t *testing.T, base string) {
	const p = "/arbe-thread-p1"
	write := writer(t, "p1")
	read := mint(t, token.Grant{Stream: thread.StreamName("p1"), Scope: []string{token.ScopeRead}})
	renew := mint(t, token.Grant{Stream: thread.StreamName("p1"), Scope: []string{token.ScopeRenew}, Run: "r1"})
	at := func(n int) string { return fmt.Sprintf("%020d", n) }
	for _, tt := range []struct {
		name    string
		call    call
		status  int
		code    string
		ids     string
		next    string // "" for any
		prev    string
		notTail bool
	}{
		{name: "no thread", call: call{method: "GET", path: p + "?limit=3", token: read}, status: 404, code: "not_found"},
		{name: "no thread's entry", call: call{method: "GET", path: p + "/entries/a", token: read}, status: 404, code: "not_found"},
		{name: "make by a reader", call: call{method: "PUT", path: p, token: read}, status: 403, code: "missing_scope"},
		{name: "make with a body", call: call{method: "PUT", path: p, token: write, body: chat("a", "x")}, status: 400, code: "body"},
		{name: "make", call: call{method: "PUT", path: p, token: write}, status: 201, next: at(0), notTail: true},
		{name: "make again", call: call{method: "PUT", path: p, token: write}, status: 200, next: at(0), notTail: true},
		{name: "an empty thread", call: call{method: "GET", path: p, token: read}, status: 200},
		{name: "an empty thread's first piece", call: call{method: "GET", path: p + "?limit=2", token: read}, status: 200, next: at(0)},
		{name: "an empty thread's last piece", call: call{method: "GET", path: p + "?before=now&limit=2", token: read}, status: 200, next: at(0), prev: at(0)},
		{
			name: "append", call: call{method: "POST", path: p, token: write, body: "[" + chat("a", "x") + "," +
				typed("b", "signal.a.b") + "," +
				typed("c", "pi.session") + "," + typed("d", "signal.a.c") + "," + chat("e", "x") + "]"}, status: 200,
			notTail: true,
		},

		{name: "the first piece", call: call{method: "GET", path: p + "?limit=2", token: read}, status: 200, ids: "a b", notTail: true},
		{name: "a limit beyond the end", call: call{method: "GET", path: p + "?offset=0&limit=1000", token: read}, status: 200, ids: "a b c d e"},
		{name: "a limit at the end", call: call{method: "GET", path: p + "?offset=0&limit=5", token: read}, status: 200, ids: "a b c d e"},
		{name: "from the tail", call: call{method: "GET", path: p + "?offset=now&limit=5", token: read}, status: 200},
		{name: "types", call: call{method: "GET", path: p + "?types=signal.", token: read}, status: 200, ids: "b d"},
		{name: "several types", call: call{method: "GET", path: p + "?types=chat,signal.a.c", token: read}, status: 200, ids: "a d e"},
		{name: "types and a limit", call: call{method: "GET", path: p + "?types=signal.&limit=1", token: read}, status: 200, ids: "b", notTail: true},
		{name: "types that no entry has", call: call{method: "GET", path: p + "?types=codex.&limit=1", token: read}, status: 200},
		{name: "without a type", call: call{method: "GET", path: p + "?without=signal.a.b,pi.", token: read}, status: 200, ids: "a d e"},
		{name: "types without one", call: call{method: "GET", path: p + "?types=signal.&without=signal.a.b", token: read}, status: 200, ids: "d"},
		{name: "without a type, and a limit", call: call{method: "GET", path: p + "?without=chat&limit=2", token: read}, status: 200, ids: "b c", notTail: true},
		{name: "without a type, backwards", call: call{method: "GET", path: p + "?before=now&limit=2&without=signal.", token: read}, status: 200, ids: "c e"},
		{name: "a wait without types that are there", call: call{method: "GET", path: p + "?without=chat&live=long-poll&offset=0", token: read}, status: 200, ids: "b c d"},
		{name: "a wait without any type that is there", call: call{method: "GET", path: p + "?without=chat,signal.,pi.&live=long-poll&offset=0", token: read}, status: 204},
		{name: "a text that looks like a type", call: call{method: "GET", path: p + "?types=x", token: read}, status: 200},
		{name: "a wait for types that are there", call: call{method: "GET", path: p + "?types=signal.&live=long-poll&offset=0", token: read}, status: 200, ids: "b d"},
		{name: "a wait for types in vain", call: call{method: "GET", path: p + "?types=codex.&live=long-poll&offset=0", token: read}, status: 204},
		{name: "a wait with a limit", call: call{method: "GET", path: p + "?limit=1&live=long-poll&offset=0", token: read}, status: 200, ids: "a", notTail: true},
		{name: "the last piece", call: call{method: "GET", path: p + "?before=now&limit=2", token: read}, status: 200, ids: "d e"},
		{name: "all of it, backwards", call: call{method: "GET", path: p + "?before=now&limit=9", token: read}, status: 200, ids: "a b c d e", prev: at(0)},
		{name: "types backwards", call: call{method: "GET", path: p + "?before=now&limit=1&types=signal.", token: read}, status: 200, ids: "d"},
		{name: "before the start", call: call{method: "GET", path: p + "?before=0&limit=1", token: read}, status: 200, next: at(0), prev: at(0), notTail: true},
		{name: "one entry", call: call{method: "GET", path: p + "/entries/c", token: read}, status: 200, ids: "c", notTail: true},

		{name: "an entry that is not there", call: call{method: "GET", path: p + "/entries/z", token: read}, status: 404, code: "no_entry"},
		{name: "another thread's token, an entry", call: call{method: "GET", path: p + "/entries/a", token: writer(t, "t2")}, status: 403, code: "wrong_thread"},
		{name: "another thread's token, a piece", call: call{method: "GET", path: p + "?limit=1", token: writer(t, "t2")}, status: 403, code: "wrong_thread"},
		{name: "a renew token, an entry", call: call{method: "GET", path: p + "/entries/a", token: renew}, status: 403, code: "missing_scope"},
		{name: "a renew token, a piece", call: call{method: "GET", path: p + "?before=now&limit=1", token: renew}, status: 403, code: "missing_scope"},
		{name: "no token, an entry", call: call{method: "GET", path: p + "/entries/a"}, status: 401, code: "no_token"},
		{name: "no token, a piece", call: call{method: "GET", path: p + "?limit=1"}, status: 401, code: "no_token"},
		{name: "limit 0", call: call{method: "GET", path: p + "?limit=0", token: read}, status: 400, code: "limit"},
		{name: "limit 1001", call: call{method: "GET", path: p + "?limit=1001", token: read}, status: 400, code: "limit"},
		{name: "limit x", call: call{method: "GET", path: p + "?limit=x", token: read}, status: 400, code: "limit"},
		{name: "an empty limit", call: call{method: "GET", path: p + "?limit=", token: read}, status: 400, code: "limit"},
		{name: "two limits", call: call{method: "GET", path: p + "?limit=1&limit=2", token: read}, status: 400, code: "query"},
		{name: "a limit of events", call: call{method: "GET", path: p + "?limit=1&live=sse", token: read}, status: 400, code: "limit"},
		{name: "before without a limit", call: call{method: "GET", path: p + "?before=now", token: read}, status: 400, code: "before"},
		{name: "before and offset", call: call{method: "GET", path: p + "?before=now&offset=0&limit=1", token: read}, status: 400, code: "before"},
		{name: "before and live", call: call{method: "GET", path: p + "?before=now&limit=1&live=long-poll", token: read}, status: 400, code: "before"},
		{name: "before nowhere", call: call{method: "GET", path: p + "?before=x&limit=1", token: read}, status: 400, code: "offset"},
		{name: "no types", call: call{method: "GET", path: p + "?types=", token: read}, status: 400, code: "types"},
		{name: "an empty type", call: call{method: "GET", path: p + "?types=chat,", token: read}, status: 400, code: "types"},
		{name: "many types", call: call{method: "GET", path: p + "?types=" + strings.Repeat("a,", 40) + "a", token: read}, status: 400, code: "types"},
		{name: "without no type", call: call{method: "GET", path: p + "?without=", token: read}, status: 400, code: "without"},
		{name: "without an empty type", call: call{method: "GET", path: p + "?types=chat&without=chat,", token: read}, status: 400, code: "without"},
		{name: "without many types", call: call{method: "GET", path: p + "?without=" + strings.Repeat("a,", 40) + "a", token: read}, status: 400, code: "without"},
		{name: "two withouts", call: call{method: "GET", path: p + "?without=a&without=b", token: read}, status: 400, code: "query"},
		{name: "another live", call: call{method: "GET", path: p + "?limit=1&live=x", token: read}, status: 400, code: "live"},
		{name: "beyond the tail", call: call{method: "GET", path: p + "?limit=1&offset=" + at(1e9), token: read}, status: 400, code: "beyond_tail"},
		{name: "within the tail's append", call: call{method: "GET", path: p + "?limit=1&offset=" + at(1e9) + "_000001", token: read}, status: 400, code: "beyond_tail"},
		{name: "before what is beyond the tail", call: call{method: "GET", path: p + "?limit=1&before=" + at(1e9), token: read}, status: 400, code: "beyond_tail"},
		{name: "a wait beyond the tail", call: call{method: "GET", path: p + "?live=long-poll&offset=" + at(1e9), token: read}, status: 400, code: "beyond_tail"},
		{name: "events beyond the tail", call: call{method: "GET", path: p + "?live=sse&offset=" + at(1e9), token: read}, status: 400, code: "beyond_tail"},
		{name: "no offset", call: call{method: "GET", path: p + "?offset=" + at(1) + "_1", token: read}, status: 400, code: "offset"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := tt.call.do(t, base)
			if a.status != tt.status || a.code != tt.code {
				t.Fatalf("got %d %s, want %d %s", a.status, a.body, tt.status, tt.code)
			}
			if a.status >= 400 || tt.call.method == "POST" {
				return
			}
			if got := ids(t, a.body); got != tt.ids {
				t.Errorf("got %q, want %q", got, tt.ids)
			}
			if got := a.header.Get("Stream-Next-Offset"); tt.next != "" && got != tt.next {
				t.Errorf("next %q, want %q", got, tt.next)
			}
			if got := a.header.Get("Stream-Prev-Offset"); tt.prev != "" && got != tt.prev {
				t.Errorf("previous %q, want %q", got, tt.prev)
			}
			if got := a.header.Get("Stream-Up-To-Date"); (got == "true") == tt.notTail {
				t.Errorf("up to date %q", got)
			}
		})
	}
	var all, back, signals []string
	for q, into := range map[string]*[]string{"": &all, "&types=signal.": &signals} {
		for offset, more := "0", true; more; {
			a := call{method: "GET", path: p + "?limit=1&offset=" + offset + q, token: read}.do(t, base)
			*into = append(*into, strings.Fields(ids(t, a.body))...)
			offset, more = a.header.Get("Stream-Next-Offset"), a.header.Get("Stream-Up-To-Date") == ""
		}
	}
	for offset := "now"; offset != at(0); {
		a := call{method: "GET", path: p + "?limit=2&before=" + offset, token: read}.do(t, base)
		back = append(strings.Fields(ids(t, a.body)), back...)
		offset = a.header.Get("Stream-Prev-Offset")
	}
	if fmt.Sprint(all, back, signals) != "[a b c d e] [a b c d e] [b d]" {
		t.Errorf("got %v, %v, %v", all, back, signals)
	}
}

// What holds for both engines: the same table, on NATS, where the entries of one append share an offset.
func TestPieces(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pieces(t, serveOn(t, open(t), func(*server.Server) {})+"/api/stream")
		})
	}
}

// A follower of some types is neither woken by nor sent entries of others, and its offset moves past them.
func TestFollowTypes(t *testing.T) {
	for name, open := range engines {
		for _, types := range []string{"types=signal.", "without=chat"} {
			t.Run(name+" "+types, func(t *testing.T) {
				t.Parallel()
				followTypes(t, open, types)
			})
		}
	}
}

func followTypes(t *testing.T, open func(testing.TB) log.Engine, types string) {
	base := serveOn(t, open(t), func(*server.Server) {}) + "/api/stream"
	const p = "/arbe-thread-t1"
	write := writer(t, "t1")
	post := func(entries ...string) {
		t.Helper()
		body := "[" + strings.Join(entries, ",") + "]"
		if a := (call{method: "POST", path: p, token: write, body: body}).do(t, base); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	post(chat("a", "x"))
	wait := func(offset string) answer {
		return call{
			method: "GET", path: p + "?live=long-poll&" + types + "&offset=" + offset,
			token: write,
		}.do(t, base)
	}
	idle := wait("0")
	tail := call{method: "GET", path: p + "?offset=now", token: write}.do(t,
		base).header.Get("Stream-Next-Offset")
	if next := idle.header.Get("Stream-Next-Offset"); idle.status != 204 || next != tail {
		t.Errorf("with others only: %d, next %s of %s", idle.status, next, tail)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follower := listen(t, ctx, base+p+"?live=sse&"+types+"&offset=0", write)
	if got := follower.until(""); got != "" {
		t.Errorf("got %q", got)
	}
	got := make(chan answer, 1)
	go func() {
		for at := tail; ; {
			a := wait(at)
			if at = a.header.Get("Stream-Next-Offset"); a.status != 204 {
				got <- a
				return
			}
		}
	}()
	for i := range 20 {
		post(chat(fmt.Sprint("b", i), "x"), chat(fmt.Sprint("c", i), "x"))
	}
	post(chat("d", "x"), typed("s1", "signal.a.b"), chat("e", "x"))
	// The follower's first event since is that of the signal: until fails for another one.
	if got := follower.until("s1"); got != "s1" {
		t.Errorf("events: %q", got)
	}
	a := <-got
	if a.status != 200 || ids(t, a.body) != "s1" {
		t.Errorf("long-poll: %+v", a)
	}
	rest := call{
		method: "GET", path: p + "?" + types + "&offset=" + a.header.Get("Stream-Next-Offset"),
		token: write,
	}.do(t, base)
	if rest.body != "" {
		t.Errorf("the rest: %s", rest.body)
	}
}

// One entry is read by its id from a server that has not read the thread yet, and one that another server appended.
func TestEntryOnAnotherServer(t *testing.T) {
	open := natsCluster(t)
	first := serveOn(t, open(t), func(*server.Server) {}) + "/api/stream"
	second := serveOn(t, open(t), func(*server.Server) {}) + "/api/stream"
	write := writer(t, "t1")
	for i := range 5 {
		id := fmt.Sprint("a", i)
		if a := (call{method: "POST", path: "/arbe-thread-t1", token: write, body: chat(id, "x")}).do(t,
			first); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
		a := call{method: "GET", path: "/arbe-thread-t1/entries/" + url.PathEscape(id), token: write}.do(t, second)
		var e thread.Entry
		if err := json.Unmarshal([]byte(a.body), &e); err != nil || e.ID != id || e.Received().IsZero() {
			t.Errorf("%v: got %+v", err, a)
		}
	}
}
