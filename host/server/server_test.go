package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

var secret = []byte("0123456789abcdef0123456789abcdef")

const path1 = "/api/stream/arbe-thread-t1"

func TestAppendAndRead(t *testing.T) {
	s := newServer(t)
	token := writer(t, "t1")
	if a := s.do("GET", path1, token, ""); a.status != 404 || a.code == "" {
		t.Errorf("reading a thread that was never written: %+v", a)
	}
	before := time.Now().Add(-time.Second)
	a := s.do("POST", path1, token, chat("a", "one"))
	if a.status != 200 || a.body != `{"nextOffset":"00000000000000000001","appended":1,"duplicates":0}`+"\n" {
		t.Fatalf("got %+v", a)
	}
	a = s.do("POST", path1, token, "["+chat("b", "two")+","+chat("c", "three")+","+chat("a", "one")+"]")
	if a.status != 200 || a.body != `{"nextOffset":"00000000000000000003","appended":2,"duplicates":1}`+"\n" {
		t.Fatalf("got %+v", a)
	}
	for offset, want := range map[string]string{
		"": "a b c", "?offset=0": "a b c", "?offset=-1": "a b c", "?offset=now": "",
		"?offset=00000000000000000002": "c", "?offset=00000000000000000003": "",
	} {
		a := s.do("GET", path1+offset, token, "")
		if a.status != 200 || ids(t, a.body) != want || a.header.Get("Stream-Up-To-Date") != "true" ||
			a.header.Get("Stream-Next-Offset") != "00000000000000000003" ||
			a.header.Get("Content-Type") != "application/x-ndjson" {
			t.Errorf("GET %s: %+v, want %s", offset, a, want)
		}
	}
	var e thread.Entry
	if err := json.Unmarshal([]byte(strings.SplitN(s.do("GET", path1, token, "").body, "\n", 2)[0]), &e); err != nil {
		t.Fatal(err)
	}
	if at := e.Received(); at.Before(before) || at.After(time.Now().Add(time.Second)) ||
		e.TS != "2026-01-01T00:00:00.000Z" ||
		string(e.Payload) != `{"type":"chat","text":"one"}` {
		t.Errorf("got %+v", e)
	}
	for _, offset := range []string{
		"2", "x", "00000000000000000004", "-2", "now&offset=0", "0000000000000000000x",
		"99999999999999999999",
	} {
		if a := s.do("GET", path1+"?offset="+offset, token, ""); a.status != 400 {
			t.Errorf("offset %s: %d, want 400", offset, a.status)
		}
	}
	if a := s.do("GET", path1+"?live=carrier-pigeon", token, ""); a.status != 400 {
		t.Errorf("got %+v", a)
	}
}

// Posting again is as good as posting once, for ever, and also after a restart.
func TestIdempotency(t *testing.T) {
	s := newServer(t)
	token := writer(t, "t1")
	first := `{"id":"a","ts":"2026-01-01T00:00:00.000Z","authorId":"me","payload":{"type":"chat","text":"x","n":[1.50,{"b":1,"a":"\u00e9"}]}}`
	same := `{"id":"a","ts":"2027-02-02T00:00:00Z","payload":{"n":[15e-1,{"a":"é","b":1.0}], "text":"x", "type":"chat"}}`
	other := `{"id":"a","ts":"2026-01-01T00:00:00.000Z","authorId":"me","payload":{"type":"chat","text":"x","n":[1.50,{"b":2,"a":"\u00e9"}]}}`
	if a := s.do("POST", path1, token, first); a.status != 200 {
		t.Fatalf("got %+v", a)
	}
	for range 2 {
		if a := s.do("POST", path1, token, same); a.status != 200 ||
			!strings.Contains(a.body, `"appended":0,"duplicates":1`) {
			t.Errorf("the same again: %+v", a)
		}
		a := s.do("POST", path1, token, "["+chat("b", "x")+","+other+","+chat("c", "x")+"]")
		if a.status != 409 || a.code != "conflict" || len(a.bad) != 1 || a.bad[0].Index != 1 || a.bad[0].ID != "a" ||
			a.bad[0].Reason == "" {
			t.Errorf("another payload: %+v", a)
		}
		if got := s.do("GET", path1, token, ""); ids(t, got.body) != "a" ||
			!strings.Contains(got.body, `"ts":"2026-01-01T00:00:00.000Z","authorId":"me"`) {
			t.Errorf("got %s", got.body)
		}
		s.close()
		s.open()
	}
	// Within one array, too.
	if a := s.do("POST", path1, token, "["+chat("d", "x")+","+chat("d", "x")+"]"); a.status != 200 ||
		!strings.Contains(a.body, `"appended":1,"duplicates":1`) {
		t.Errorf("got %+v", a)
	}
	if a := s.do("POST", path1, token, "["+chat("e", "x")+","+chat("e", "y")+"]"); a.status != 409 ||
		len(a.bad) != 1 ||
		a.bad[0].Index != 1 {
		t.Errorf("got %+v", a)
	}
	// Another thread's ids are its own.
	if a := s.do("POST", "/api/stream/arbe-thread-t", writer(t, "t"), other); a.status != 200 {
		t.Errorf("got %+v", a)
	}
	if got := s.do("GET", path1, token, ""); ids(t, got.body) != "a d" {
		t.Errorf("got %s", got.body)
	}
}

func TestLargePostRefuses(t *testing.T) {
	s := newServer(t)
	token := writer(t, "t1")
	big := chat("big", strings.Repeat("x", thread.MaxEntry))
	many := "[" + strings.TrimSuffix(strings.Repeat(chat("a", "x")+",", 1001), ",") + "]"
	for _, tt := range []struct {
		name   string
		body   string
		header []string
		status int
		bad    string // indexes of the listed entries
	}{
		{"no JSON", `{`, nil, 400, ""},
		{"empty", ``, nil, 400, ""},
		{"empty array", `[]`, nil, 400, ""},
		{"a number", `7`, nil, 400, "0"},
		{"two objects", chat("a", "x") + chat("b", "x"), nil, 400, "0"},
		{"a bad entry", strings.Replace(chat("a", "x"), "chat", "nonsense", 1), nil, 400, "0"},
		{"bad entries", "[" + chat("a", "x") + ",7," + chat("b c", "x") + "]", nil, 400, "1 2"},
		{"a large entry", big, nil, 413, "0"},
		{"a large entry of several", "[" + chat("a", "x") + "," + big + "]", nil, 413, "1"},
		{"too many", many, nil, 413, ""},
		{"too large", "[" + strings.Repeat(" ", thread.MaxBody) + "]", nil, 413, ""},
		{"a form", "a=b", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, ""},
		{"no type", chat("a", "x"), []string{"Content-Type", ""}, 415, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := s.do("POST", path1, token, tt.body, tt.header...)
			var bad []string
			for _, b := range a.bad {
				bad = append(bad, fmt.Sprint(b.Index))
			}
			if a.status != tt.status || a.code == "" || strings.Join(bad, " ") != tt.bad {
				t.Errorf("got %d %s %v, want %d with %q", a.status, a.code, a.bad, tt.status, tt.bad)
			}
		})
	}
	if a := s.do("GET", path1, token, ""); a.status != 404 {
		t.Errorf("something was appended: %s", a.body)
	}
	if a := s.do("POST", path1, token, chat("ok", "x"), "Content-Type",
		"application/json; charset=utf-8"); a.status != 200 {
		t.Errorf("got %+v", a)
	}
}

// What a post or a read has wrong gets the code that docs/PROTOCOL.md has for it.
func TestCodes(t *testing.T) {
	s := newServer(t)
	token := writer(t, "t1")
	if a := s.do("POST", path1, token, chat("first", "x")); a.status != 200 {
		t.Fatalf("got %+v", a)
	}
	running := func(parent string) string {
		return `{"id":"r.running","ts":"2026-06-01T12:00:00.000Z","payload":{"type":"signal.thread.status_changed",` +
			`"status":"running","runId":"r","harness":"pi","parent":` + parent + `}}`
	}
	number := func(digits int) string {
		return strings.TrimSuffix(chat("n", "x"), "}}") + `,"n":` + strings.Repeat("7", digits) + `}}`
	}
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	at := strings.TrimSuffix(chat("at", "x"), "}") + `,"at":"2026-06-01T12:00:00.000Z"}`
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		code, reason             string
	}{
		{"offset twice", "GET", path1 + "?offset=0&offset=0", "", 400, "query", ""},
		{"limit twice", "GET", path1 + "?offset=0&limit=1&limit=1", "", 400, "query", ""},
		{"no offset", "GET", path1 + "?offset=x", "", 400, "offset", ""},
		{"no body", "POST", path1, "", 400, "empty", ""},
		{"white space", "POST", path1, " \n", 400, "empty", ""},
		{"no entries", "POST", path1, "[]", 400, "empty", ""},
		{"at", "POST", path1, at, 400, "invalid", "at: only the server sets it"},
		{"at in an array", "POST", path1, "[" + at + "]", 400, "invalid", "at: only the server sets it"},
		{"a parent of words", "POST", path1, running(`"t2"`), 400, "invalid", "payload.parent: want an object"},
		{"no parent", "POST", path1, running(`null`), 400, "invalid", "payload.parent: want an object"},
		{"a parent without a thread", "POST", path1, running(`{}`), 400, "invalid", "payload.parent.threadId"},
		{"a parent with a number", "POST", path1, running(`{"threadId":7}`), 400, "invalid", "payload.parent"},
		{"a parent with a path", "POST", path1, running(`{"threadId":"a/b"}`), 400, "invalid", "payload.parent.threadId"},
		{"the same in an array", "POST", path1, "[" + running(`{"threadId":"a/b"}`) + "]", 400, "invalid", "parent.threadId"},
		{"a parent", "POST", path1, running(`{"threadId":"t2","authorId":"ann"}`), 200, "", ""},
		{"a chat's parent", "POST", path1, strings.Replace(chat("c", "x"), `"text"`, `"parent":7,"text"`, 1), 200, "", ""},
		{"a long number", "POST", path1, number(1000), 200, "", ""},
		{"a number that is too long", "POST", path1, number(1001), 400, "invalid", "a number of 1001 characters"},
		{"a megabyte of digits", "POST", path1, number(1 << 20), 400, "invalid", "a number of 1048576 characters"},
		{"the same in an array", "POST", path1, "[" + number(1001) + "]", 400, "invalid", "a number of 1001 characters"},
		{"too deep", "POST", path1, strings.Replace(number(1), `:7}`, ":"+deep+"}", 1), 400, "invalid", "nested"},
		{"digits in a text", "POST", path1, chat("text", strings.Repeat("7", 1<<20)), 200, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := s.do(tt.method, tt.path, token, tt.body)
			reason := ""
			if len(a.bad) > 0 {
				if reason = a.bad[0].Reason; a.bad[0].ID == "" {
					t.Error("the bad entry has no id")
				}
			}
			if a.status != tt.status || a.code != tt.code || !strings.Contains(reason, tt.reason) {
				t.Errorf("got %d %s %.200q, want %d %s %q", a.status, a.code, reason, tt.status, tt.code, tt.reason)
			}
		})
	}
}

func TestAccess(t *testing.T) {
	s := newServer(t)
	all := func(scopes ...string) token.Grant {
		return token.Grant{Stream: thread.StreamName("t1"), Scope: scopes}
	}
	if a := s.do("POST", path1, writer(t, "t1"), chat("a", "x")); a.status != 200 {
		t.Fatalf("got %+v", a)
	}
	sign := func(method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
		token, err := jwt.NewWithClaims(method, claims).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	later := time.Now().Add(time.Hour).Unix()
	claims := func(change func(jwt.MapClaims)) jwt.MapClaims {
		c := jwt.MapClaims{"sub": "arbe-thread-t1", "scope": "stream:write", "exp": later}
		change(c)
		return c
	}
	good := mint(t, all(token.ScopeWrite))
	parts := strings.Split(good, ".")
	for _, tt := range []struct {
		name  string
		token string
		read  int
		write int
		renew int
	}{
		{"write", good, 200, 200, 403},
		{"read", mint(t, all(token.ScopeRead)), 200, 403, 403},
		{"renew", mint(t, all(token.ScopeRenew)), 403, 403, 200},
		{"read and write", mint(t, all(token.ScopeRead, token.ScopeWrite)), 200, 200, 403},
		{"another scope", mint(t, all("stream:admin")), 403, 403, 403},
		{"another thread's", writer(t, "t2"), 403, 403, 403},
		{"none", "", 401, 401, 401},
		{"nonsense", "x.y.z", 401, 401, 401},
		{"expired", mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeWrite}, Until: time.Now().Add(-time.Minute)}), 401, 401, 401},
		{"another secret", sign(jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), claims(func(jwt.MapClaims) {})), 401, 401, 401},
		{"alg none", sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims(func(jwt.MapClaims) {})), 401, 401, 401},
		{"alg HS512", sign(jwt.SigningMethodHS512, secret, claims(func(jwt.MapClaims) {})), 401, 401, 401},
		{"no signature", parts[0] + "." + parts[1] + ".", 401, 401, 401},
		{"no exp", sign(jwt.SigningMethodHS256, secret, claims(func(c jwt.MapClaims) { delete(c, "exp") })), 401, 401, 401},
		{"no sub", sign(jwt.SigningMethodHS256, secret, claims(func(c jwt.MapClaims) { delete(c, "sub") })), 401, 401, 401},
		{"no scope", sign(jwt.SigningMethodHS256, secret, claims(func(c jwt.MapClaims) { delete(c, "scope") })), 401, 401, 401},
		{"odd sub", sign(jwt.SigningMethodHS256, secret, claims(func(c jwt.MapClaims) { c["sub"] = "t1" })), 401, 401, 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, call := range []struct {
				want               int
				method, path, body string
			}{
				{tt.read, "GET", path1, ""}, {tt.write, "POST", path1, chat("a", "x")}, {tt.renew, "POST", path1 + "/token", ""},
			} {
				a := s.do(call.method, call.path, tt.token, call.body)
				if a.status != call.want {
					t.Errorf("%s %s: %d %s, want %d", call.method, call.path, a.status, a.body, call.want)
				}
				if challenge := a.header.Get("WWW-Authenticate"); (a.status == 401) != (challenge == `Bearer error="invalid_token"`) {
					t.Errorf("%s %s: %d with WWW-Authenticate %q", call.method, call.path, a.status, challenge)
				}
				if tt.token != "" && strings.Contains(a.body, tt.token) {
					t.Errorf("the token is in the answer: %s", a.body)
				}
			}
		})
	}
	for _, path := range []string{
		"/api/stream/t1", "/api/stream/arbe-thread-", "/api/stream/arbe-thread-a%2Fb",
		"/api/stream/arbe-thread-" + strings.Repeat("x", 129), "/api/stream/arbe-thread-t1/nope", "/nope",
	} {
		if a := s.do("GET", path, good, ""); a.status != 404 {
			t.Errorf("GET %s: %d, want 404", path, a.status)
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := s.do("GET", path, "", ""); a.status != 200 {
			t.Errorf("GET %s: %d", path, a.status)
		}
	}
}

// A token for one run may post that run's signals, and what is no signal.
func TestRunScope(t *testing.T) {
	s := newServer(t)
	signed := mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeWrite}, Run: "r1"})
	signal := func(id, run string) string {
		return fmt.Sprintf(
			`{"id":%q,"ts":"2026-01-01T00:00:00.000Z","payload":{"type":"signal.thread.status_changed","runId":%q,"harness":"pi","status":"running"}}`,
			id,
			run,
		)
	}
	for _, tt := range []struct {
		name, body string
		want       int
	}{
		{"its own signal", signal("r1.running", "r1"), 200},
		{"another run's", signal("r2.running", "r2"), 403},
		{"one without a run", signal("x", ""), 403},
		{"a chat", chat("c", "x"), 403},
		{"a line", line("", "c"), 200},
		{"both", "[" + signal("r1.started", "r1") + "," + signal("r2.started", "r2") + "]", 403},
	} {
		if a := s.do("POST", path1, signed, tt.body); a.status != tt.want {
			t.Errorf("%s: %d %s, want %d", tt.name, a.status, a.body, tt.want)
		}
	}
	if a := s.do("GET", path1, signed, ""); ids(t, a.body) != "r1.running c" {
		t.Errorf("got %s", a.body)
	}

	renew := mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeRenew}, Run: "r1"})
	a := s.do("POST", path1+"/token", renew, "")
	var fresh struct{ JWT, ExpiresAt string }
	if err := json.Unmarshal([]byte(a.body), &fresh); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	until, err := time.Parse(time.RFC3339, fresh.ExpiresAt)
	if err != nil || time.Until(until) < 119*time.Minute || time.Until(until) > 2*time.Hour {
		t.Errorf("expires at %s", fresh.ExpiresAt)
	}
	if a := s.do("POST", path1, fresh.JWT, signal("r1.beat.1", "r1")); a.status != 200 {
		t.Errorf("got %+v", a)
	}
	if a := s.do("POST", path1, fresh.JWT, signal("r2.beat.1", "r2")); a.status != 403 {
		t.Errorf("the fresh token is for any run: %+v", a)
	}
	// The run's end is lately: its renew token is still good.
	if a := s.do("POST", path1, fresh.JWT, signal("r1.end.0", "r1")); a.status != 200 {
		t.Errorf("got %+v", a)
	}
	if a := s.do("POST", path1+"/token", renew, ""); a.status != 200 {
		t.Errorf("got %+v", a)
	}
}

func TestLongPoll(t *testing.T) {
	s := newServer(t)
	token := writer(t, "t1")
	s.do("POST", path1, token, chat("a", "x"))
	if a := s.do("GET", path1+"?offset=0&live=long-poll", token, ""); a.status != 200 || ids(t, a.body) != "a" {
		t.Errorf("what is there is not waited for: %+v", a)
	}
	began := time.Now()
	a := s.do("GET", path1+"?offset=now&live=long-poll", token, "")
	if a.status != 204 || a.header.Get("Stream-Next-Offset") != "00000000000000000001" ||
		a.header.Get("Stream-Up-To-Date") != "true" ||
		time.Since(began) < 250*time.Millisecond {
		t.Errorf("after %v: %+v", time.Since(began), a)
	}
	got := make(chan answer)
	var ready sync.WaitGroup
	for range 5 {
		ready.Add(1)
		go func() {
			ready.Done()
			for { // a wait that ends with nothing is made again, as clients do
				if a := s.do("GET", path1+"?offset=00000000000000000001&live=long-poll", token, ""); a.status != 204 {
					got <- a
					return
				}
			}
		}()
	}
	ready.Wait()
	s.do("POST", path1, token, chat("b", "x"))
	for range 5 {
		if a := <-got; a.status != 200 || ids(t, a.body) != "b" ||
			a.header.Get("Stream-Next-Offset") != "00000000000000000002" {
			t.Errorf("got %+v", a)
		}
	}
}

// Many writers at once: every acknowledged entry is there once, each writer's in his order, also after a restart.
func TestConcurrentWriters(t *testing.T) {
	s := newServer(t)
	const writers, each = 16, 25
	var all sync.WaitGroup
	for w := range writers {
		all.Add(1)
		go func() {
			defer all.Done()
			name := fmt.Sprintf("t%d", w%4)
			token := writer(t, name)
			for i := range each {
				body := fmt.Sprintf(
					"[%s,%s]",
					chat(fmt.Sprintf("w%d.%d.a", w, i), "x"),
					chat(fmt.Sprintf("w%d.%d.b", w, i), "x"),
				)
				for range 2 {
					if a := s.do("POST", "/api/stream/arbe-thread-"+name, token, body); a.status != 200 {
						t.Errorf("got %+v", a)
					}
				}
			}
		}()
	}
	all.Wait()
	for range 2 {
		for n := range 4 {
			name := fmt.Sprintf("t%d", n)
			got := strings.Fields(ids(t, s.do("GET", "/api/stream/arbe-thread-"+name, writer(t, name), "").body))
			if len(got) != writers/4*each*2 {
				t.Fatalf("%s has %d entries", name, len(got))
			}
			next := map[int]int{}
			for i := 0; i < len(got); i += 2 {
				var w, k int
				if _, err := fmt.Sscanf(got[i], "w%d.%d.a", &w, &k); err != nil || k != next[w] ||
					got[i+1] != fmt.Sprintf("w%d.%d.b", w, k) {
					t.Fatalf("%s: %s, %s where %d of writer %d was due", name, got[i], got[i+1], next[w], w)
				}
				next[w]++
			}
		}
		s.close()
		s.open()
	}
}

// A thread of many megabytes is read as a whole, in pieces.
func TestLargeThread(t *testing.T) {
	s := newServer(t)
	token := writer(t, "t1")
	text := strings.Repeat("x", 1<<20)
	for i := range 10 {
		if a := s.do("POST", path1, token, chat(fmt.Sprint(i), text)); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	a := s.do("GET", path1, token, "")
	if ids(t, a.body) != "0 1 2 3 4 5 6 7 8 9" || bytes.Count([]byte(a.body), []byte(text)) != 10 {
		t.Errorf("got %d bytes, %s", len(a.body), ids(t, a.body))
	}
}
