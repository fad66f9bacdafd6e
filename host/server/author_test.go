package server_test

import (
	"fmt"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// by returns an entry of an author; "" for none.
func by(author, id string) string {
	return strings.TrimSpace(string(thread.Entry{
		ID: id, TS: "2026-01-01T00:00:00.000Z", AuthorID: author, Payload: []byte(`{"type":"chat","text":"x"}`),
	}.AppendJSON(nil)))
}

// line returns an entry of a session, of an author; "" for none.
func line(author, id string) string {
	return strings.Replace(by(author, id), `"text":"x"`, `"text":"x","session":{"id":"s","index":1}`, 1)
}

// authorRows are posts by tokens with and without an author. Body has the entries of each row.
var authorRows = []struct {
	name, claim string
	entries     []string // authors
	status      int
	bad         string // indexes of the entries that the error lists
}{
	{"no claim, no author", "", []string{""}, 200, ""},
	{"no claim, any author", "", []string{"ann", "bob"}, 200, ""},
	{"the author", "ann", []string{"ann"}, 200, ""},
	{"none", "ann", []string{""}, 200, ""},
	{"another", "ann", []string{"bob"}, 403, "0"},
	{"another case", "ann", []string{"Ann"}, 403, "0"},
	{"a longer one", "ann", []string{"ann "}, 403, "0"},
	{"one of them", "ann", []string{"ann", "bob", "", "eve"}, 403, "1 3"},
}

// authored holds the rows against the thread API.
func authored(t *testing.T, base string) {
	for i, tt := range authorRows {
		id := fmt.Sprint("author", i)
		signed := mint(t, token.Grant{
			Stream: thread.StreamName(id), Scope: []string{token.ScopeWrite}, Author: tt.claim,
		})
		path := "/arbe-thread-" + id
		a := call{method: "POST", path: path, token: signed, body: authorBody(tt.entries)}.do(t, base)
		if a.status != tt.status || indexes(a) != tt.bad || a.code != map[int]string{403: "wrong_author"}[tt.status] {
			t.Errorf("%s: %d %s, want %d and %q", tt.name, a.status, a.body, tt.status, tt.bad)
		}
		want := ""
		if tt.status == 200 {
			want = strings.Join(strings.Split("e0 e1 e2 e3", " ")[:len(tt.entries)], " ")
		}
		if got := (call{method: "GET", path: path, token: signed}).do(t, base); ids(t, got.body) != want && want != "" {
			t.Errorf("%s: the thread has %s", tt.name, got.body)
		} else if want == "" && got.status != 404 {
			t.Errorf("%s: %d %s", tt.name, got.status, got.body)
		}
	}
	// A fresh token has the author of the renew token.
	renew := mint(t, token.Grant{
		Stream: thread.StreamName("authorR"), Scope: []string{token.ScopeRenew}, Run: "r1", Author: "ann",
	})
	a := call{method: "POST", path: "/arbe-thread-authorR/token", token: renew}.do(t, base)
	fresh := jwtOf(t, a.body)
	for author, want := range map[string]int{"ann": 200, "bob": 403} {
		a := call{method: "POST", path: "/arbe-thread-authorR", token: fresh, body: line(author, author)}.do(t, base)
		if a.status != want {
			t.Errorf("%s with a renewed token: %d %s", author, a.status, a.body)
		}
	}
}

func authorBody(authors []string) string {
	var all []string
	for i, author := range authors {
		all = append(all, by(author, fmt.Sprint("e", i)))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// indexes returns the indexes of the entries that an error lists.
func indexes(a answer) string {
	var all []string
	for _, b := range a.bad {
		all = append(all, fmt.Sprint(b.Index))
	}
	return strings.Join(all, " ")
}

func jwtOf(t *testing.T, body string) string {
	t.Helper()
	_, rest, _ := strings.Cut(body, `"jwt":"`)
	signed, _, ok := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("no token in %q", body)
	}
	return signed
}

// The protocol's posts and the entries that a thread is made with are checked, too. Messages of another stream have no
// authors, nor have those of a fork.
func TestAuthorBelowProtocol(t *testing.T) {
	s := newServer(t)
	for i, tt := range authorRows {
		for _, method := range []string{"POST", "PUT"} {
			id := fmt.Sprint("p", i, method)
			g := token.Grant{Stream: thread.StreamName(id), Scope: []string{token.ScopeWrite}, Author: tt.claim}
			path, want := "/v1/stream/arbe-thread-"+id, map[string]int{"POST": 204, "PUT": 201}[method]
			if method == "POST" {
				if a := s.do("PUT", path, mint(t, g), ""); a.status != 201 {
					t.Fatalf("%+v", a)
				}
			}
			if tt.status != 200 {
				want = tt.status
			}
			if a := s.do(method, path, mint(t, g), authorBody(tt.entries)); a.status != want || indexes(a) != tt.bad {
				t.Errorf("%s, %s: %d %s, want %d", tt.name, method, a.status, a.body, want)
			}
		}
	}
	source := token.Grant{Stream: thread.StreamName("source"), Scope: []string{token.ScopeWrite}, Author: "ann"}
	if a := s.do("POST", "/api/stream/arbe-thread-source", mint(t, source), by("ann", "a")); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	fork := mint(t, token.Grant{Stream: "fork", Scope: []string{token.ScopeWrite}, Author: "ann"})
	status, body := s.raw("PUT", "/v1/stream/fork", fork, "Stream-Forked-From: /v1/stream/arbe-thread-source\r\n"+
		"Stream-Fork-Authorization: Bearer "+mint(t, source)+"\r\n", "")
	if status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	if a := s.do("POST", "/v1/stream/fork", fork, by("bob", "b")); a.status != 204 {
		t.Errorf("a message of a fork: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/api/stream/arbe-thread-source", mint(t, source), ""); ids(t, a.body) != "a" {
		t.Errorf("the source has %s", a.body)
	}
}
