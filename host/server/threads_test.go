package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// signal is an entry with a signal of a run, as a client posts it.
func signal(run, suffix, typ, more string) string {
	return fmt.Sprintf(
		`{"id":"%s.%s","ts":"2026-01-01T00:00:00.000Z","payload":{"type":%q,"runId":%q,"harness":"pi"%s}}`,
		run, suffix, typ, run, more,
	)
}

// listed holds for the list of threads and their summaries. base is that of the thread API.
func listed(t *testing.T, base string) {
	root := strings.TrimSuffix(base, "/api/stream")
	list := mint(t, token.Grant{Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}})
	began := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	for i, end := range []string{"", "completed", "failed"} {
		id := fmt.Sprint("listed", i)
		entries := []string{
			`{"id":"r1.prompt","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":"Do it\nwell","runId":"r1"}}`,
			signal("r1", "running", thread.TypeStatus, `,"status":"running","parent":{"threadId":"p"}`),
			signal("r1", "sandbox", thread.TypeSandbox, `,"sandbox":{"provider":"local","ref":"b1"}`),
			signal("r1", "beat.0", thread.TypeHeartbeat, `,"beat":0,"nextMs":5000`),
			`{"id":"pi:s:1","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"pi.assistant","model":"m1",` +
				`"usage":{"input":3,"output":2,"cacheRead":1,"cacheWrite":0,"totalTokens":6,"cost":{"total":0.25}}}}`,
		}
		if end != "" {
			entries = append(entries, signal("r1", "end.0", thread.TypeStatus, `,"status":"`+end+`"`))
		}
		for _, e := range entries {
			c := call{method: "POST", path: "/arbe-thread-" + id, token: writer(t, id), body: e}
			if a := c.do(t, base); a.status != 200 {
				t.Fatalf("got %+v", a)
			}
		}
		// A summary has all of its thread; on a busy machine the list may not have it yet.
		if a := (call{method: "GET", path: "/api/threads/" + id, token: list}).do(t, root); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	get := func(query string, want string) thread.SummaryPage {
		t.Helper()
		a := call{method: "GET", path: "/api/threads" + query, token: list}.do(t, root)
		var page thread.SummaryPage
		if err := json.Unmarshal([]byte(a.body), &page); err != nil || a.status != 200 ||
			a.header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %v, %+v", query, err, a)
		}
		var ids []string
		for _, v := range page.Threads {
			if strings.HasPrefix(v.ID, "listed") {
				ids = append(ids, v.ID)
			}
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
		return page
	}
	page := get("", "listed2 listed1 listed0")
	get("?status=failed", "listed2")
	get("?status=failed,running&harness=pi", "listed2 listed0")
	get("?harness=codex", "")
	get("?since="+url.QueryEscape(began), "listed2 listed1 listed0")
	get("?since=2999-01-01T00:00:00Z", "")
	first := get("?limit=1&harness=pi", "listed2")
	second := get("?limit=1&harness=pi&cursor="+url.QueryEscape(first.Cursor), "listed1")
	if last := get("?limit=1&harness=pi&cursor="+url.QueryEscape(second.Cursor), "listed0"); last.Cursor != "" {
		t.Errorf("the last page has the cursor %s", last.Cursor)
	}

	one := call{method: "GET", path: "/api/threads/listed1", token: list}.do(t, root)
	var v thread.Summary
	if err := json.Unmarshal([]byte(one.body), &v); err != nil || one.status != 200 {
		t.Fatalf("%v, %+v", err, one)
	}
	i := slices.IndexFunc(page.Threads, func(v thread.Summary) bool { return v.ID == "listed1" })
	if d := cmp.Diff(page.Threads[i], v); d != "" {
		t.Error(d)
	}
	cost := 0.25
	for _, at := range []*string{&v.StartedAt, &v.EndedAt, &v.LastEntryAt, &v.LastBeatAt} {
		if _, err := time.Parse(time.RFC3339, *at); err != nil || *at < began {
			t.Error(err)
		}
		*at = ""
	}
	want := thread.Summary{
		ID: "listed1", Status: "completed", Title: "Do it", Run: "r1", Harness: "pi", Model: "m1",
		NextMs: 5000, Lines: 1,
		Usage: &thread.Usage{Input: 3, Output: 2, CacheRead: 1, TotalTokens: 6}, Cost: &cost,
		Sandbox: &thread.Sandbox{Provider: "local", Ref: "b1"}, Parent: &thread.Parent{ThreadID: "p"},
		Offset: "00000000000000000006",
	}
	if d := cmp.Diff(want, v); d != "" {
		t.Error(d)
	}
	listedRefusals(t, root, list)
}

// listedRefusals is who may read the list, and what is asked for badly.
func listedRefusals(t *testing.T, root, list string) {
	read := mint(t, token.Grant{Stream: thread.StreamName("listed1"), Scope: []string{token.ScopeRead}})
	write := writer(t, "listed1")
	run := mint(t, token.Grant{Stream: thread.StreamName("listed1"), Scope: []string{token.ScopeWrite}, Run: "r1"})
	stream := mint(t, token.Grant{Stream: "threads", Scope: []string{token.ScopeWrite}})
	another := mint(t, token.Grant{Stream: thread.StreamName("listed1"), Scope: []string{token.ScopeThreads}})
	const one, settle = "/api/threads/listed1", "/api/threads/listed1/reconcile"
	for _, tt := range []struct {
		call   call
		status int
		body   string
	}{
		{call{method: "GET", path: one, token: read}, 200, ""},
		{call{method: "GET", path: one, token: write}, 200, ""},
		{call{method: "GET", path: one, token: writer(t, "listed2")}, 403, ""},
		{call{method: "GET", path: one}, 401, ""},
		{call{method: "GET", path: "/api/threads/never", token: list}, 404, ""},
		{call{method: "GET", path: "/api/threads/a.b", token: list}, 404, ""},
		{call{method: "GET", path: "/api/threads", token: read}, 403, ""},
		{call{method: "GET", path: "/api/threads", token: stream}, 403, ""},
		{call{method: "GET", path: "/api/threads", token: another}, 403, ""},
		{call{method: "GET", path: "/api/threads"}, 401, ""},
		{call{method: "GET", path: "/api/threads", token: "x.y.z"}, 401, ""},
		{call{method: "GET", path: "/api/threads?status=odd", token: list}, 400, ""},
		{call{method: "GET", path: "/api/threads?limit=201", token: list}, 400, ""},
		{call{method: "GET", path: "/api/threads?limit=0", token: list}, 400, ""},
		{call{method: "GET", path: "/api/threads?limit=1&limit=2", token: list}, 400, ""},
		{call{method: "GET", path: "/api/threads?since=yesterday", token: list}, 400, ""},
		{call{method: "GET", path: "/api/threads?cursor=x", token: list}, 400, ""},
		{call{method: "GET", path: "/api/threads?live=long-poll", token: list}, 400, ""},
		{
			call{method: "POST", path: settle, token: write},
			200,
			`{"status":"failed","open":false,"actions":[{"threadId":"listed1","did":"orphaned"}]}`,
		},
		{call{method: "POST", path: settle, token: list}, 401, ""}, // it has no thread as its subject
		{call{method: "POST", path: settle, token: read}, 403, ""},
		{call{method: "POST", path: settle, token: run}, 403, ""},
	} {
		a := tt.call.do(t, root)
		if a.status != tt.status || tt.body != "" && strings.TrimSpace(a.body) != tt.body ||
			a.status >= 400 && a.code == "" {
			t.Errorf(
				"%s %s: got %d %s, want %d %s",
				tt.call.method,
				tt.call.path,
				a.status,
				a.body,
				tt.status,
				tt.body,
			)
		}
	}
	a := call{method: "GET", path: "/arbe-thread-listed1", token: list}.do(t, root+"/api/stream")
	if a.status != 401 {
		t.Errorf("with the list's token: %+v", a)
	}
}

// The list is live: first its page, then what changes.
func TestListLive(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	list := mint(t, token.Grant{Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}})
	post := func(id, entry string) {
		t.Helper()
		if a := s.do("POST", "/api/stream/arbe-thread-"+id, writer(t, id), entry); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	post("t1", signal("r1", "running", thread.TypeStatus, `,"status":"running"`))
	post("t2", signal("r1", "end.0", thread.TypeStatus, `,"status":"failed"`))
	for s.do("GET", "/api/threads", list, "").status == http.StatusServiceUnavailable { // being built
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.srv.URL+"/api/threads?live=sse&status=running", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+list)
	resp, err := s.srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("got %v", resp.Header)
	}
	lines := bufio.NewScanner(resp.Body)
	event := func() string {
		t.Helper()
		for lines.Scan() {
			kind, is := strings.CutPrefix(lines.Text(), "event: ")
			if !is || !lines.Scan() {
				continue
			}
			var v thread.Summary
			if err := json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data:")), &v); err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(kind + " " + v.ID + " " + v.Status)
		}
		t.Fatalf("the events ended: %v", lines.Err())
		return ""
	}
	for _, want := range []string{"thread t1 running", "control"} {
		if got := event(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	post("t1", signal("r1", "end.0", thread.TypeStatus, `,"status":"completed"`))
	if got := event(); got != "thread t1 completed" {
		t.Fatalf("got %q", got)
	}
	gone := mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeDelete}})
	if a := s.do("DELETE", "/v1/stream/arbe-thread-t1", gone, ""); a.status != 204 {
		t.Fatalf("got %+v", a)
	}
	if got := event(); got != "deleted t1" {
		t.Fatalf("got %q", got)
	}
}
