package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/member"
	house "arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// newRowServer starts a server with rows of the houses h1, with the threads t1 and t2, and h2, with t3. t0 is of none.
func newRowServer(t *testing.T, with func(*server.Server)) (*testServer, *store) {
	r := newRows()
	st := newStore(r)
	s := &testServer{t: t, dir: t.TempDir(), doors: &member.Doors{
		Logins: member.Logins{Secrets: [][]byte{secret}}, Rows: r,
	}}
	s.with = func(h *server.Server) {
		if h.Rows = st; with != nil {
			with(h)
		}
	}
	s.open()
	t.Cleanup(s.close)
	st.change(func() {
		st.add("t1", "h1", nil)
		st.add("t2", "h1", func(t *house.Thread) { t.Pinned, t.Name, t.Tags = true, "plan", []string{"a"} })
		st.add("t3", "h2", nil)
	})
	for _, id := range []string{"t0", "t1", "t3"} { // t2 has no entries
		if a := s.do("POST", "/api/stream/arbe-thread-"+id, writer(t, id), by("", "e0")); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	list := mint(t, token.Grant{Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}})
	until(t, "the index", func() bool { return s.do("GET", "/api/threads", list, "").status == 200 })
	return s, st
}

// TestRowErrors is the answer to each error of the rows.
func TestRowErrors(t *testing.T) {
	t.Parallel()
	s, st := newRowServer(t, nil)
	signed := login(t, ann, time.Hour)
	for _, row := range []struct {
		err    error
		status int
		code   string
	}{
		{house.ErrAbsent, 404, "not_found"},
		{&house.Refusal{Kind: house.ErrTaken, Text: "the thread's id: taken"}, 409, "exists"},
		{&house.Refusal{Kind: house.ErrReference, Text: "the environment: not in this house"}, 400, "reference"},
		{&house.Refusal{Kind: house.ErrInvalid, Text: "the thread's status: not valid"}, 400, "value"},
		{&house.Refusal{Kind: house.ErrArchived, Text: "the environment: archived"}, 409, "archived"},
		{house.ErrRunning, 409, "running"},
		{house.ErrForbidden, 403, "owners_only"},
		{house.ErrNoKeys, 503, "secret_keys"},
		{errors.New("hunter2"), 503, "houses"},
	} {
		st.change(func() { st.fail = row.err })
		for _, request := range [][2]string{{"POST", "/api/environments"}, {"PUT", "/api/secrets/KEY"}} {
			body := map[string]string{"POST": `{"name":"x"}`, "PUT": `{"value":"x"}`}[request[0]]
			if request[0] == "PUT" && row.status == 409 || request[0] == "POST" && row.status == 403 {
				continue // the rows return no such error there
			}
			a := s.do(request[0], request[1], signed, body)
			if a.status != row.status || a.code != row.code || strings.Contains(a.body, "hunter2") {
				t.Errorf("%s %s, %v: %d %s, want %d %s", request[0], request[1], row.err, a.status, a.body, row.status,
					row.code)
			}
			if row.code == "houses" && a.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
	}
	st.change(func() { st.fail = &house.Refusal{Kind: house.ErrNoKeys, Text: "the keys can't be read now"} })
	a := s.do("PUT", "/api/secrets/KEY", signed, `{"value":"x"}`)
	if a.status != 503 || a.code != "secret_keys" || !strings.Contains(a.body, "the keys can't be read now") {
		t.Errorf("keys that can't be read: %d %s", a.status, a.body)
	}
	st.change(func() { st.fail = errors.New("away") })
	for _, path := range []string{"/api/threads", "/api/threads/t1"} {
		if a := s.do("GET", path, signed, ""); a.status != 503 || a.code != "houses" {
			t.Errorf("%s without rows: %+v", path, a)
		}
	}
	if a := s.do("GET", "/api/threads/t1", writer(t, "t1"), ""); a.status != 200 {
		t.Errorf("a thread's token without rows: %+v", a)
	}
}

// TestRowBounds refuses bodies that are too large, of another type or form, and what exceeds the token quota.
func TestRowBounds(t *testing.T) {
	t.Parallel()
	refused := errors.New("config: image: want a name")
	s, st := newRowServer(t, func(h *server.Server) {
		h.TokenQuota = thread.MaxBody
		h.CheckRecipe = func(r *house.Recipe) error {
			if strings.Contains(string(r.Config), "bad") {
				return refused
			}
			return nil
		}
	})
	signed := login(t, ann, time.Hour)
	many := strings.Repeat(`"x",`, 32) + `"x"`
	for _, row := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", "/api/threads", `{}`, 201, ""},
		{"POST", "/api/threads", ``, 400, "json"},
		{"POST", "/api/threads", `[]`, 400, "json"},
		{"POST", "/api/threads", `{} {}`, 400, "json"},
		{"POST", "/api/threads", `{"sandbox":"x"}`, 400, "json"},
		{"POST", "/api/threads", `{"name":"` + strings.Repeat("x", 201) + `"}`, 400, "value"},
		{"POST", "/api/threads", `{"tags":[` + many + `]}`, 400, "value"},
		{"POST", "/api/threads", `{"tags":[""]}`, 400, "value"},
		{"POST", "/api/threads", `{"config":[]}`, 400, "value"},
		{"POST", "/api/threads", `{"config":{"x":"` + strings.Repeat("x", 64<<10) + `"}}`, 400, "value"},
		{"POST", "/api/threads", `{"agent":"pi"}`, 400, "value"},
		{"POST", "/api/threads", `{"parentAgent":"pi"}`, 400, "value"},
		{"POST", "/api/threads", `{"parent":"t1","parentAgent":"` + ann + `"}`, 400, "value"},
		{"PATCH", "/api/threads/t1", `{"config":[]}`, 400, "value"},
		{"POST", "/api/threads", `{"id":"a.b"}`, 400, "value"},
		{"POST", "/api/threads", `{"id":"m_x"}`, 400, "value"},
		{"POST", "/api/threads", `{"id":"t0"}`, 409, "exists"}, // of no house
		{"POST", "/api/threads", `{"id":"t1"}`, 200, ""},
		{"POST", "/api/threads", `{"house":"h2"}`, 404, "not_found"},
		{"PATCH", "/api/threads/t1", `{"house":"h2"}`, 400, "json"},
		{"PATCH", "/api/threads/t3", `{`, 404, "not_found"},
		{"POST", "/api/environments", `{"name":"x","config":{"a":"bad"}}`, 400, "value"},
		{"POST", "/api/environments", `{"name":"x","runtime":"a b"}`, 400, "value"},
		{"POST", "/api/environments", `{"name":"x","config":{"a":"good"}}`, 201, ""},
		{"PATCH", "/api/environments/e1", `{"config":{"a":"bad"}}`, 400, "value"},
		{"PATCH", "/api/environments/e1", `{"house":"h2"}`, 400, "value"},
		{"PUT", "/api/environments/e1", `{"name":"y"}`, 200, ""},
		{"PUT", "/api/secrets/KEY", `{"value":""}`, 400, "value"},
		{"PUT", "/api/secrets/KEY", `{}`, 400, "value"},
		{"PUT", "/api/secrets/KEY", `{"value":"a\nb\u00e4"}`, 200, ""},
		{"PUT", "/api/secrets/1KEY", `{"value":"x"}`, 400, "value"},
		{"PUT", "/api/secrets/KEY", strings.Repeat(" ", 512<<10) + `{"value":"x"}`, 413, "too_large"},
	} {
		a := s.do(row.method, row.path, signed, row.body)
		if a.status != row.status || a.code != row.code {
			t.Errorf("%s %s %.100s: %d %s, want %d %s", row.method, row.path, row.body, a.status, a.body, row.status,
				row.code)
		}
	}
	if st.recipe.Name != "y" || string(st.recipe.Config) != "{}" || st.recipe.Runtime != "daytona" {
		t.Errorf("PUT left %+v", st.recipe)
	}
	if got := st.values["h1 KEY"]; got != "a\nbä" {
		t.Errorf("the value is %q", got)
	}
	if a := s.do("POST", "/api/threads", signed, "{}", "Content-Type", "text/plain"); a.status != 415 {
		t.Errorf("text/plain: %+v", a)
	}
	large := `{"name":"` + strings.Repeat("x", 250<<10) + `"}`
	until(t, "the quota is used up", func() bool {
		return s.do("POST", "/api/threads", signed, large).code == "quota"
	})
}

// TestWithoutRows has a server without rows refuse what is about them.
func TestWithoutRows(t *testing.T) {
	t.Parallel()
	s, _ := newHouses(t)
	signed := login(t, ann, time.Hour)
	for _, request := range [][2]string{
		{"GET", "/api/threads?tag=a"},
		{"POST", "/api/threads"},
		{"PATCH", "/api/threads/t1"},
		{"DELETE", "/api/threads/t1"},
		{"GET", "/api/environments"},
		{"PUT", "/api/secrets/KEY"},
	} {
		if a := s.do(request[0], request[1], signed, "{}"); a.status != 501 || a.code != "no_houses" {
			t.Errorf("%v: %+v", request, a)
		}
	}
	if a := s.do("GET", "/api/threads", signed, ""); a.status != 200 || strings.Contains(a.body, "house") {
		t.Errorf("the list: %+v", a)
	}
}

// TestRowList lists threads with their rows, those without entries among them, at once and live.
func TestRowList(t *testing.T) {
	t.Parallel()
	s, st := newRowServer(t, nil)
	signed := login(t, ann, time.Hour)
	listed := func(signed, query string) (all []string) {
		t.Helper()
		for cursor := ""; ; {
			a := s.do("GET", "/api/threads?limit=1"+query+cursor, signed, "")
			var page thread.SummaryPage
			if err := json.Unmarshal([]byte(a.body), &page); err != nil || a.status != 200 {
				t.Fatalf("%v, %+v", err, a)
			}
			for _, v := range page.Threads {
				if v.Row == nil {
					t.Fatalf("%s has no row: %s", v.ID, a.body)
				}
				all = append(all, v.ID+" "+v.House+" "+v.Name+" "+strings.Join(v.Tags, ","))
			}
			if cursor = "&cursor=" + page.Cursor; page.Cursor == "" {
				return all
			}
		}
	}
	list := mint(t, token.Grant{Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}})
	of := mint(t, token.Grant{Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}, House: "h1"})
	t1, t2, t3 := "t1 h1  ", "t2 h1 plan a", "t3 h2  "
	for _, row := range []struct {
		signed, query string
		want          []string
	}{
		{signed, "", []string{t2, t1}},
		{signed, "&pinned=true", []string{t2}},
		{signed, "&harness=pi", nil},
		{login(t, bob, time.Hour), "", []string{t3}},
		{login(t, eve, time.Hour), "", nil},
		{list, "&house=h2", []string{t3}},
		{of, "&pinned=true", []string{t2}},
	} {
		if got := listed(row.signed, row.query); !slices.Equal(got, row.want) {
			t.Errorf("%s: got %q, want %q", row.query, got, row.want)
		}
	}
	if a := s.do("GET", "/api/threads?house=h2", of, ""); a.status != 403 || a.code != "wrong_house" {
		t.Errorf("another house's token: %+v", a)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.srv.URL+"/api/threads?live=sse", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+signed)
	resp, err := httpClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func(want string) {
		t.Helper()
		for lines.Scan() {
			data, is := strings.CutPrefix(lines.Text(), "data:")
			if !is {
				continue
			}
			var v thread.Summary
			if err := json.Unmarshal([]byte(data), &v); err != nil {
				t.Fatal(err)
			}
			if got := v.ID; got != want || v.ID != "" && (v.Row == nil || v.House != "h1") {
				t.Fatalf("got %s, want %s", data, want)
			}
			return
		}
		t.Fatal(lines.Err())
	}
	next("t1")
	next("t2")
	next("") // control
	s.do("POST", "/api/stream/arbe-thread-t3", writer(t, "t3"), by("", "e1"))
	s.do("POST", "/api/stream/arbe-thread-t2", writer(t, "t2"), by("", "e1"))
	next("t2")
	st.change(func() { st.add("t4", "h1", nil) })
	s.do("POST", "/api/stream/arbe-thread-t4", writer(t, "t4"), by("", "e1"))
	next("t4")
}

// TestRowCreateAtOnce makes a thread while an equal request does: neither is refused, and one has made it.
func TestRowCreateAtOnce(t *testing.T) {
	t.Parallel()
	s, st := newRowServer(t, nil)
	signed := login(t, ann, time.Hour)
	for i, row := range []struct {
		body   string
		header []string
	}{{`{"id":"both"}`, nil}, {`{}`, []string{"Idempotency-Key", "both"}}} {
		var first answer // the other request, which comes between the look for the row and all that follows
		st.change(func() {
			st.missed = func() { first = s.do("POST", "/api/threads", signed, row.body, row.header...) }
		})
		second := s.do("POST", "/api/threads", signed, row.body, row.header...)
		if first.status != 201 || second.status != 200 {
			t.Errorf("%d: %d, and then %d %s, want 201 and 200", i, first.status, second.status, second.body)
		}
	}
	// Another house's thread, and one of no house, stay refused.
	for _, id := range []string{"t3", "t0"} {
		if a := s.do("POST", "/api/threads", signed, `{"id":"`+id+`"}`); a.status != 409 || a.code != "exists" {
			t.Errorf("%s: %d %s", id, a.status, a.body)
		}
	}
}

// TestRowDelete deletes a thread whose rows can't be deleted at first: a repeat finishes it.
func TestRowDelete(t *testing.T) {
	t.Parallel()
	s, st := newRowServer(t, nil)
	signed := login(t, ann, time.Hour)
	st.change(func() { st.lose = errors.New("away") })
	if a := s.do("DELETE", "/api/threads/t1", signed, ""); a.status != 503 || a.code != "houses" {
		t.Errorf("the rows are away: %+v", a)
	}
	if a := s.do("GET", path1, writer(t, "t1"), ""); a.status != 410 {
		t.Errorf("the log: %+v", a)
	}
	if a := s.do("GET", "/api/threads/t1", signed, ""); a.status != 200 {
		t.Errorf("the row: %+v", a)
	}
	st.change(func() { st.lose = nil })
	if a := s.do("DELETE", "/api/threads/t1", signed, ""); a.status != 204 {
		t.Errorf("again: %+v", a)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if a := s.do(method, "/api/threads/t1", signed, ""); a.status != 404 {
			t.Errorf("%s of what is deleted: %+v", method, a)
		}
	}
	// A thread without an entry: its id is not given again, either.
	st.change(func() { st.add("t5", "h1", nil) })
	if a := s.do("DELETE", "/api/threads/t5", signed, ""); a.status != 204 {
		t.Errorf("a thread without entries: %+v", a)
	}
	for _, id := range []string{"t1", "t5"} {
		if a := s.do("POST", "/api/stream/arbe-thread-"+id, writer(t, id), by("", "e1")); a.status != 410 {
			t.Errorf("a post on the deleted thread %s: %d %s", id, a.status, a.body)
		}
		if a := s.do("POST", "/api/threads", signed, `{"id":"`+id+`"}`); a.status != 409 || a.code != "exists" {
			t.Errorf("the id %s once more: %d %s", id, a.status, a.body)
		}
	}
	// A run that the rows do not know of.
	running := `{"id":"r1.running","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"signal.thread.status_changed",` +
		`"runId":"r1","harness":"pi","status":"running"}}`
	if a := s.do("POST", "/api/stream/arbe-thread-t2", writer(t, "t2"), running); a.status != 200 {
		t.Fatalf("got %+v", a)
	}
	if a := s.do("DELETE", "/api/threads/t2", signed, ""); a.status != 409 || a.code != "running" {
		t.Errorf("a thread with an open run: %+v", a)
	}
}

// TestClosed refuses a member's chat in a closed thread, and no one else's.
func TestClosed(t *testing.T) {
	t.Parallel()
	s, r := newHouses(t)
	r.change(func() { r.closed = map[string]bool{"t1": true} })
	chat := `{"payload":{"type":"chat","text":"x"}}`
	a := s.do("POST", "/api/threads/t1/entries", login(t, ann, time.Hour), chat)
	if a.status != 409 || a.code != "closed" {
		t.Errorf("got %+v", a)
	}
	if a := s.do("POST", "/api/threads/t3/entries", login(t, ann, time.Hour), chat); a.status != 201 {
		t.Errorf("another thread: %+v", a)
	}
	if a := s.do("POST", path1, writer(t, "t1"), by("", "e1")); a.status != 200 {
		t.Errorf("a token of the thread: %+v", a)
	}
}

// TestSettleOnCancel settles a thread without an open run on which a run's end is requested, before the answer: a task
// that waits has no runner that would see it. So it does before a thread whose task waits is deleted.
func TestSettleOnCancel(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var settled []string
	var fails error
	s, st := newRowServer(t, func(with *server.Server) {
		with.Settle = func(_ context.Context, id string) (server.Settled, error) {
			mu.Lock()
			defer mu.Unlock()
			settled = append(settled, id)
			return server.Settled{}, fails
		}
	})
	check := func(a answer, status int, want ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if a.status != status || !slices.Equal(settled, want) {
			t.Errorf("%+v, settled %v, want %d and %v", a, settled, status, want)
		}
		settled = nil
	}
	entry := func(id, payload string) string {
		return `{"id":"` + id + `","ts":"2026-01-01T00:00:00.000Z","payload":` + payload + `}`
	}
	cancel := `{"type":"signal.dispatch.cancel_requested"}`
	post := func(id, entry string) answer {
		return s.do("POST", "/api/stream/arbe-thread-"+id, writer(t, id), entry)
	}
	check(post("t1", entry("c1", cancel)), 200, "t1")
	check(post("t1", entry("c2", `{"type":"chat","text":"signal.dispatch.cancel_requested"}`)), 200)
	check(post("t2", entry("r1.running", `{"type":"signal.thread.status_changed","runId":"r1","harness":"pi",`+
		`"status":"running"}`)), 200)
	check(post("t2", entry("c1", cancel)), 200) // its runner does it

	signed := login(t, ann, time.Hour)
	st.change(func() { st.add("w1", "h1", func(t *house.Thread) { t.Waits = true }) })
	mu.Lock()
	fails = errors.New("the parent can't be reached")
	mu.Unlock()
	check(s.do("DELETE", "/api/threads/w1", signed, ""), 503, "w1")
	check(s.do("GET", "/api/threads/w1", signed, ""), 200)
	mu.Lock()
	fails = nil
	mu.Unlock()
	check(s.do("DELETE", "/api/threads/w1", signed, ""), 204, "w1")
	check(s.do("GET", "/api/threads/w1", signed, ""), 404)
	check(s.do("DELETE", "/api/threads/t1", signed, ""), 204)
}

// TestSettleOnRead settles a thread with a run once somebody reads it, one pass at a time.
func TestSettleOnRead(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	settled := map[string]int{}
	begun, finish := make(chan string, 100), make(chan struct{})
	var h *server.Server
	s, _ := newRowServer(t, func(with *server.Server) {
		h = with
		h.Settle = func(ctx context.Context, id string) (server.Settled, error) {
			mu.Lock()
			settled[id]++
			mu.Unlock()
			begun <- id
			select {
			case <-finish:
			case <-ctx.Done():
			}
			return server.Settled{}, nil
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.SettleLoop(ctx) }()
	for _, id := range []string{"t1", "t3"} {
		run := `{"id":"r1.running","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"signal.thread.status_changed",` +
			`"runId":"r1","harness":"pi","status":"running"}}`
		if a := s.do("POST", "/api/stream/arbe-thread-"+id, writer(t, id), run); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	for range 20 {
		s.do("GET", "/api/threads/t1", login(t, ann, time.Hour), "")
		s.do("GET", "/api/threads/t2", login(t, ann, time.Hour), "") // which had no run
	}
	if got := <-begun; got != "t1" {
		t.Errorf("settled %s", got)
	}
	close(finish)
	s.do("GET", "/api/threads/t3", login(t, bob, time.Hour), "")
	if got := <-begun; got != "t3" {
		t.Errorf("settled %s", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(settled) != 2 || settled["t1"] != 1 || settled["t3"] != 1 {
		t.Errorf("settled %v", settled)
	}
}
