package server_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// Whatever somebody tries who may not, or who means harm, is refused with the right status, on the thread API and on
// the protocol, by the log of each engine: nothing is appended, and the answer holds nothing of the token.
func TestSecurity(t *testing.T) {
	s := newServer(t)
	good := writer(t, "t1")
	if a := s.do("POST", path1, good, chat("a", "x")); a.status != 200 {
		t.Fatalf("got %+v", a)
	}
	later := time.Now().Add(time.Hour).Unix()
	sign := func(method jwt.SigningMethod, key any, change ...any) string {
		c := jwt.MapClaims{"sub": "arbe-thread-t1", "scope": "stream:write", "exp": later}
		for i := 0; i+1 < len(change); i += 2 {
			if name := change[i].(string); change[i+1] == nil {
				delete(c, name)
			} else {
				c[name] = change[i+1]
			}
		}
		token, err := jwt.NewWithClaims(method, c).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	part := strings.Split(good, ".")
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	_, err := zip.Write(bytes.Repeat([]byte(" "), 10<<20))
	if err == nil {
		err = zip.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat("[", 1_000_000)
	nested := `{"id":"d","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":"x","a":` + strings.Repeat(
		`[`,
		100_000,
	) + strings.Repeat(
		`]`,
		100_000,
	) + `}}`

	type try struct {
		name   string
		token  string
		header string // lines, each with its end
		path   string // instead of the usual one
		body   string
		want   int
	}
	tries := []try{
		{name: "no token", want: 401},
		{name: "nonsense", token: "x.y.z", want: 401},
		{name: "alg none", token: sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType), want: 401},
		{name: "alg HS512", token: sign(jwt.SigningMethodHS512, secret), want: 401},
		{name: "alg HS384", token: sign(jwt.SigningMethodHS384, secret), want: 401},
		{
			name:  "forged with another secret",
			token: sign(jwt.SigningMethodHS256, bytes.Repeat([]byte("x"), 32)),
			want:  401,
		},
		{name: "forged with an empty secret", token: sign(jwt.SigningMethodHS256, []byte{}), want: 401},
		{name: "no signature", token: part[0] + "." + part[1] + ".", want: 401},
		{
			name:  "another's signature",
			token: part[0] + "." + strings.Split(writer(t, "t2"), ".")[1] + "." + part[2],
			want:  401,
		},
		{
			name:  "expired",
			token: sign(jwt.SigningMethodHS256, secret, "exp", time.Now().Add(-time.Minute).Unix()),
			want:  401,
		},
		{name: "not yet good", token: sign(jwt.SigningMethodHS256, secret, "nbf", later), want: 401},
		{name: "without exp", token: sign(jwt.SigningMethodHS256, secret, "exp", nil), want: 401},
		{name: "without sub", token: sign(jwt.SigningMethodHS256, secret, "sub", nil), want: 401},
		{name: "without scope", token: sign(jwt.SigningMethodHS256, secret, "scope", nil), want: 401},
		{
			name:  "sub of no stream",
			token: sign(jwt.SigningMethodHS256, secret, "sub", "arbe-thread-../t1"),
			want:  401,
		},
		{name: "another thread's", token: writer(t, "t2"), want: 403},
		{
			name:  "another stream's",
			token: mint(t, token.Grant{Stream: "t1", Scope: []string{token.ScopeWrite}}),
			want:  401,
		},
		{
			name:  "scope read",
			token: mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeRead}}),
			want:  403,
		},
		{
			name:  "scope renew",
			token: mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeRenew}}),
			want:  403,
		},
		{
			name:  "scope that looks like it",
			token: sign(jwt.SigningMethodHS256, secret, "scope", "stream:writer xstream:write STREAM:WRITE"),
			want:  403,
		},
		{name: "basic", header: "Authorization: Basic " + good + "\r\n", want: 401},
		{name: "two tokens", header: "Authorization: Bearer x\r\nAuthorization: Bearer " + good + "\r\n", want: 401},
		{name: "token in the query", path: "?token=" + good, want: 401},
		{name: "gzip bomb", token: good, header: "Content-Encoding: gzip\r\n", body: bomb.String(), want: 415},
		{name: "arrays in arrays", token: good, body: deep, want: 400},
		{name: "arrays in an entry", token: good, body: nested, want: 400},
		{name: "a body without end", token: good, header: "Content-Length: 99999999999\r\n", want: 413},
		{name: "header with a line break", token: good, header: "X-A: b\rSet-Cookie: c\r\n", want: 400},
		{name: "header's name with a blank", token: good, header: "X A: b\r\n", want: 400},
		{name: "large header", token: good, header: "X-A: " + strings.Repeat("x", 2<<20) + "\r\n", want: 431},
		{name: "two lengths", token: good, header: "Content-Length: 3\r\nContent-Length: 4\r\n", want: 400},
		{
			name:   "both lengths",
			token:  good,
			header: "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
			body:   "zz\r\n\r\n",
			want:   400,
		},
		{name: "an odd encoding", token: good, header: "Transfer-Encoding: gzip, chunked\r\n", want: 501},
	}
	for _, way := range []string{"/api/stream/arbe-thread-t1", "/v1/stream/arbe-thread-t1"} {
		for _, tt := range tries {
			t.Run(tt.name+" "+way[:4], func(t *testing.T) {
				body := tt.body
				if body == "" {
					body = chat("new", "x")
				}
				got, answer := s.raw("POST", way+tt.path, tt.token, tt.header, body)
				if got != tt.want {
					t.Errorf("%d, want %d: %s", got, tt.want, answer)
				}
				if tt.token != "" && strings.Contains(answer, tt.token) || strings.Contains(answer, "Set-Cookie") {
					t.Errorf("the answer has what it must not: %s", answer)
				}
			})
		}
	}
	for _, tt := range []struct {
		name, method, path string
		want               []int
	}{
		{"up", "GET", "/api/stream/../api/stream/arbe-thread-t1", []int{307, 301, 400, 404}},
		{"up, encoded", "GET", "/api/stream/%2e%2e/stream/arbe-thread-t1", []int{400, 404, 301, 307}},
		{"a slash, encoded", "GET", "/api/stream/arbe-thread-t1%2f..%2ft2", []int{404}},
		{"a zero byte", "GET", "/api/stream/arbe-thread-t1%00", []int{404}},
		{"a line break", "GET", "/api/stream/arbe-thread-t1%0d%0aSet-Cookie:x", []int{404}},
		{"protocol: up", "GET", "/v1/stream/a/../arbe-thread-t1", []int{400}},
		{"protocol: up, encoded", "GET", "/v1/stream/a/%2e%2e/arbe-thread-t1", []int{400}},
		{"protocol: out", "GET", "/v1/stream/../../healthz", []int{400}},
		{"protocol: empty part", "GET", "/v1/stream//arbe-thread-t1", []int{400}},
		{"protocol: zero byte", "GET", "/v1/stream/a%00b", []int{400}},
		{"protocol: line break", "PUT", "/v1/stream/a%0d%0aLocation:%20http://x", []int{400}},
		{"protocol: a thread's name and more", "GET", "/v1/stream/arbe-thread-t1/x", []int{400}},
		{"protocol: no UTF-8", "GET", "/v1/stream/%ff", []int{400}},
		{"protocol: long", "GET", "/v1/stream/" + strings.Repeat("x", 513), []int{400}},
		{"protocol: reserved", "PUT", "/v1/stream/__ds/subscriptions/x", []int{404}},
		{"the thread's token deletes", "DELETE", "/v1/stream/arbe-thread-t1", []int{403}},
		{"the thread's token makes a backup", "GET", "/v1/admin/backup", []int{403}},
		{"another host's page", "OPTIONS", "/v1/stream/arbe-thread-t1", []int{204}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, answer := s.raw(tt.method, tt.path, good, "", "")
			ok := false
			for _, want := range tt.want {
				ok = ok || got == want
			}
			if !ok || strings.Contains(answer, `"text":"x"`) || strings.Contains(answer, "\nSet-Cookie") ||
				strings.Contains(answer, "\nLocation: http://x") {
				t.Errorf("%d, want %v: %s", got, tt.want, answer)
			}
		})
	}
	for _, h := range []string{
		"Stream-Forked-From: /v1/stream/arbe-thread-t1\r\n",
		"Stream-Forked-From: /v1/stream/arbe-thread-t1\r\nStream-Fork-Authorization: Bearer " + writer(t, "t2") +
			"\r\n",
	} {
		mine := mint(t, token.Grant{Stream: "mine", Scope: []string{token.ScopeWrite}})
		if got, answer := s.raw("PUT", "/v1/stream/mine", mine, h, ""); got != 401 && got != 403 {
			t.Errorf("a fork of what one may not read: %d %s", got, answer)
		}
	}
	if a := s.do("GET", path1, good, ""); ids(t, a.body) != "a" || a.status != 200 {
		t.Errorf("the thread has changed: %+v", a)
	}
}

// raw sends a request byte by byte as it is given.
func (s *testServer) raw(method, path, token, header, body string) (status int, answer string) {
	s.t.Helper()
	u, err := url.Parse(s.srv.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", u.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		header += "Authorization: Bearer " + token + "\r\n"
	}
	if !strings.Contains(header, "Content-Length") && !strings.Contains(header, "Transfer-Encoding") {
		header += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(
			conn,
			method+" "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+header+"\r\n"+body,
		) // it may be refused before its end
	}()
	defer func() { <-sent }()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		s.t.Fatalf("no answer: %v", err)
	}
	var all strings.Builder
	for name, values := range resp.Header {
		fmt.Fprintf(&all, "%s: %s\n", name, strings.Join(values, ","))
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil && resp.ContentLength > 0 && len(b) < int(resp.ContentLength) {
		s.t.Fatalf("half an answer: %v", err)
	}
	_ = resp.Body.Close() // it was read as far as it goes
	return resp.StatusCode, all.String() + "\n" + string(b)
}

// A secret is changed without a pause: with two, the first one signs and both verify; what the old one has signed is
// good until it is taken away.
func TestKeyRotation(t *testing.T) {
	old, fresh := secret, []byte("another-secret-of-32-bytes-or-more")
	e := engines["pebble"](t)
	base := serveOn(t, e, func(s *server.Server) { s.Secrets = [][]byte{fresh, old} })
	signed := func(key []byte, scope string) string {
		token, err := token.Sign(
			key,
			token.Grant{Stream: thread.StreamName("t1"), Scope: []string{scope}, Until: time.Now().Add(time.Hour)},
		)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	post := func(token string) int {
		return call{
			method: "POST",
			path:   "/arbe-thread-t1",
			token:  token,
			body:   chat("a", "x"),
		}.do(
			t,
			base+"/api/stream",
		).status
	}
	if a, b := post(signed(old, token.ScopeWrite)), post(signed(fresh, token.ScopeWrite)); a != 200 || b != 200 {
		t.Errorf("the old one's token %d, the new one's %d", a, b)
	}
	a := call{
		method: "POST",
		path:   "/arbe-thread-t1/token",
		token:  signed(old, token.ScopeRenew),
	}.do(
		t,
		base+"/api/stream",
	)
	_, rest, _ := strings.Cut(a.body, `"jwt":"`)
	renewed, _, _ := strings.Cut(rest, `"`)
	if _, err := jwt.Parse(renewed, func(*jwt.Token) (any, error) { return fresh, nil }); err != nil ||
		a.status != 200 {
		t.Errorf("a renewed token is not signed with the new secret: %v, %+v", err, a)
	}
	later := serveOn(t, engines["pebble"](t), func(s *server.Server) { s.Secrets = [][]byte{fresh} })
	for token, want := range map[string]int{signed(old, token.ScopeWrite): 401, renewed: 200} {
		if got := (call{method: "POST", path: "/arbe-thread-t1", token: token, body: chat("a", "x")}).do(t,
			later+"/api/stream").status; got != want {
			t.Errorf("without the old secret: %d, want %d", got, want)
		}
	}
	for given, good := range map[string]bool{string(fresh) + "," + string(old): true, string(fresh) + ", " +
		string(old) + "\n": true, string(fresh) + ",": false, "short": false} {
		if keys, err := token.ParseSecrets(given); (err == nil) != good ||
			good && (len(keys) != 2 || !bytes.Equal(keys[0], fresh) || !bytes.Equal(keys[1], old)) {
			t.Errorf("%q: %q, %v", given, keys, err)
		}
	}
}
