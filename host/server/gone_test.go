package server_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// checkDeleted asks for the deleted thread t1 by each route, with tokens that were signed before.
func checkDeleted(t *testing.T, when string, do func(method, path, token, body string, header ...string) answer) {
	t.Helper()
	const api, ds = "/api/stream/arbe-thread-t1", "/v1/stream/arbe-thread-t1"
	of := func(scope string) string {
		return mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{scope}})
	}
	write := of(token.ScopeWrite)
	run := mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeRenew}, Run: "r1"})
	list := mint(t, token.Grant{Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}})
	for _, row := range []struct{ method, path, token, body string }{
		{"GET", api, of(token.ScopeRead), ""},
		{"GET", api + "?offset=now&live=long-poll", write, ""},
		{"GET", api + "?offset=0&live=sse", write, ""},
		{"GET", api + "?before=now&limit=1", write, ""},
		{"GET", api + "?offset=00000000000000000001", write, ""},
		{"GET", api + "/entries/e0", write, ""},
		{"POST", api, write, chat("e0", "x")}, // the entry that it had
		{"POST", api, write, "[" + chat("e8", "x") + "," + chat("e9", "x") + "]"},
		{"PUT", api, write, ""},
		{"POST", api + "/token", run, ""},
		{"GET", "/api/threads/t1", write, ""},
		{"GET", "/api/threads/t1", list, ""},
		{"GET", ds, write, ""},
		{"POST", ds, write, chat("e9", "x")},
		{"PUT", ds, write, ""},
		{"PUT", ds, write, chat("e9", "x")},
		{"DELETE", ds, of(token.ScopeDelete), ""},
	} {
		a := do(row.method, row.path, row.token, row.body)
		if a.status != 410 || a.code != "gone" {
			t.Errorf("%s: %s %s: %d %s, want 410 gone", when, row.method, row.path, a.status, a.body)
		}
	}
	notes := mint(t, token.Grant{Stream: "fork", Scope: []string{token.ScopeWrite}})
	a := do("PUT", "/v1/stream/fork", notes, "",
		"Stream-Forked-From", ds, "Stream-Fork-Authorization", "Bearer "+of(token.ScopeRead))
	if a.status != 409 || a.code != "gone" { // as the protocol has it
		t.Errorf("%s: a fork of it: %d %s", when, a.status, a.body)
	}
}

// The id of a deleted thread is not given again: with older tokens, after a restart, and in a log that was restored
// from a backup. A stream that is no thread is made again.
func TestDeletedThread(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	do := func(method, path, token, body string, header ...string) answer {
		return s.do(method, path, token, body, header...)
	}
	for i := range 3 {
		a := do("POST", "/api/stream/arbe-thread-t1", writer(t, "t1"), chat(fmt.Sprint("e", i), "x"))
		if a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	remove := func(name string) {
		t.Helper()
		signed := mint(t, token.Grant{Stream: name, Scope: []string{token.ScopeDelete}})
		if a := do("DELETE", "/v1/stream/"+name, signed, ""); a.status != 204 {
			t.Fatalf("delete %s: %+v", name, a)
		}
	}
	remove("arbe-thread-t1")
	notes := mint(t, token.Grant{Stream: "notes", Scope: []string{token.ScopeWrite}})
	for range 2 {
		if a := do("PUT", "/v1/stream/notes", notes, ""); a.status != 201 {
			t.Errorf("a stream that is no thread: %+v", a)
		}
		remove("notes")
	}
	checkDeleted(t, "at once", do)
	s.close()
	s.open()
	checkDeleted(t, "after a restart", do)

	backup := do("GET", server.BackupPath, admin(t), "").body
	data := daemon.Data(t.TempDir())
	if _, err := data.Restore(t.Context(), strings.NewReader(backup)); err != nil {
		t.Fatal(err)
	}
	restored := &testServer{t: t, dir: filepath.Join(string(data), "log")}
	restored.open()
	defer restored.close()
	checkDeleted(t, "restored", restored.do)
}

// The same on a cluster: for the server that has deleted the thread, for another one that has appended to it before,
// and for one that starts later.
func TestDeletedThreadOnCluster(t *testing.T) {
	t.Parallel()
	open := natsCluster(t)
	with := func(s *server.Server) {
		x, stop := startIndex(t, s.Log, quiet)
		s.Index = x
		t.Cleanup(stop)
	}
	here, there := serveOn(t, open(t), with), serveOn(t, open(t), with)
	at := func(base string) func(method, path, token, body string, header ...string) answer {
		return func(method, path, token, body string, header ...string) answer {
			return call{method: method, path: path, token: token, body: body, header: header}.do(t, base)
		}
	}
	for i, base := range []string{here, there, here, there} {
		a := at(base)("POST", "/api/stream/arbe-thread-t1", writer(t, "t1"), chat(fmt.Sprint("e", i), "x"))
		if a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	signed := mint(t, token.Grant{Stream: "arbe-thread-t1", Scope: []string{token.ScopeDelete}})
	if a := at(here)("DELETE", "/v1/stream/arbe-thread-t1", signed, ""); a.status != 204 {
		t.Fatalf("got %+v", a)
	}
	checkDeleted(t, "there", at(there))
	checkDeleted(t, "here", at(here))
	checkDeleted(t, "later", at(serveOn(t, open(t), with)))
}
