package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// Agents of tests.
const (
	ann = "0a000000-0000-4000-8000-000000000001" // a member of house h1
	bob = "0b000000-0000-4000-8000-000000000002" // a member of house h2
	eve = "0e000000-0000-4000-8000-000000000003" // of no house
)

// rows are the rows of a test's houses.
type rows struct {
	mu     sync.Mutex
	houses map[string][]string // by agent
	of     map[string]string   // by thread
	closed map[string]bool     // by thread
	away   error
}

func newRows() *rows {
	return &rows{
		houses: map[string][]string{ann: {"h1"}, bob: {"h2"}},
		of:     map[string]string{"t1": "h1", "t2": "h2", "t3": "h1", "empty": "h1"},
	}
}

func (r *rows) Houses(_ context.Context, agent string) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.houses[agent], r.away
}

func (r *rows) HousesOf(_ context.Context, threads []string) (map[string]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]string{}
	for _, id := range threads {
		if of, ok := r.of[id]; ok {
			all[id] = of
		}
	}
	return all, r.away
}

func (r *rows) Closed(_ context.Context, thread string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed[thread], r.away
}

func (r *rows) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// newHouses starts a server with houses. Threads t1 and t3 are of h1, t2 of h2, and t4 of none.
func newHouses(t *testing.T) (*testServer, *rows) {
	r := newRows()
	s := &testServer{t: t, dir: t.TempDir(), doors: &member.Doors{
		Logins: member.Logins{Secrets: [][]byte{secret}}, Rows: r,
	}}
	s.open()
	t.Cleanup(s.close)
	for i := range 4 {
		id := fmt.Sprint("t", i+1)
		if a := s.do("POST", "/api/stream/arbe-thread-"+id, writer(t, id), by("", "e0")); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	list := mint(t, token.Grant{Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}})
	for s.do("GET", "/api/threads", list, "").status == http.StatusServiceUnavailable { // being built
		time.Sleep(time.Millisecond)
	}
	return s, r
}

func login(t testing.TB, agent string, ttl time.Duration) string {
	t.Helper()
	signed, err := member.SignLogin(secret, agent, time.Now().Add(ttl))
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// TestMemberDoors is who may use which route: each route with a member of the thread's house, of another house and of
// none, with a login that has expired, with a token of the thread, of the list, and with none.
func TestMemberDoors(t *testing.T) {
	t.Parallel()
	s, _ := newHouses(t)
	chat := `{"payload":{"type":"chat","text":"hello"}}`
	list := mint(t, token.Grant{Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}})
	who := []string{
		login(t, ann, time.Hour), login(t, bob, time.Hour), login(t, eve, time.Hour), login(t, ann, -time.Second),
		writer(t, "t1"), list, "",
	}
	for _, row := range []struct {
		method, path, body string
		want               [7]int
	}{
		{"GET", "/api/threads", "", [7]int{200, 200, 200, 401, 403, 200, 401}},
		{"GET", "/api/threads/t1", "", [7]int{200, 404, 404, 401, 200, 200, 401}},
		{"GET", "/api/threads/t4", "", [7]int{404, 404, 404, 401, 403, 200, 401}}, // of no house
		{"GET", "/api/threads/never", "", [7]int{404, 404, 404, 401, 403, 404, 401}},
		{"GET", "/api/threads/a.b", "", [7]int{404, 404, 404, 401, 404, 404, 404}},
		{"GET", "/api/threads/t1/entries", "", [7]int{200, 404, 404, 401, 401, 401, 401}},
		{"GET", "/api/threads/t4/entries", "", [7]int{404, 404, 404, 401, 401, 401, 401}},
		{"GET", "/api/threads/never/entries", "", [7]int{404, 404, 404, 401, 401, 401, 401}},
		{"GET", "/api/threads/a.b/entries", "", [7]int{404, 404, 404, 401, 401, 401, 401}},
		{"POST", "/api/threads/t1/entries", chat, [7]int{201, 404, 404, 401, 401, 401, 401}},
		{"POST", "/api/threads/t4/entries", chat, [7]int{404, 404, 404, 401, 401, 401, 401}},
		{"POST", "/api/threads/never/entries", chat, [7]int{404, 404, 404, 401, 401, 401, 401}},
		{"POST", "/api/threads/t1/tasks", `{"task":"do it"}`, [7]int{501, 404, 404, 401, 401, 401, 401}},
		{"POST", "/api/threads/t4/tasks", `{"task":"do it"}`, [7]int{404, 404, 404, 401, 401, 401, 401}},
		{"POST", "/api/threads/never/tasks", `{"task":"do it"}`, [7]int{404, 404, 404, 401, 401, 401, 401}},
		{"POST", "/api/threads/t1/commands", `{"command":"ls"}`, [7]int{501, 404, 404, 401, 501, 401, 401}},
		{"POST", "/api/threads/t4/commands", `{"command":"ls"}`, [7]int{404, 404, 404, 401, 403, 401, 401}},
		{"POST", "/api/threads/t1/commands/c/cancel", "", [7]int{501, 404, 404, 401, 501, 401, 401}},
		// A login token is no token of a thread, of a stream or of the server.
		{"GET", "/api/stream/arbe-thread-t1", "", [7]int{401, 401, 401, 401, 200, 401, 401}},
		{"GET", "/api/stream/arbe-thread-t1/entries/e0", "", [7]int{401, 401, 401, 401, 200, 401, 401}},
		{"POST", "/api/stream/arbe-thread-t1", by("", "e1"), [7]int{401, 401, 401, 401, 200, 401, 401}},
		{"PUT", "/api/stream/arbe-thread-t1", "", [7]int{401, 401, 401, 401, 200, 401, 401}},
		{"POST", "/api/stream/arbe-thread-t1/token", "", [7]int{401, 401, 401, 401, 403, 401, 401}},
		{"POST", "/api/threads/t1/reconcile", "", [7]int{501, 404, 404, 401, 501, 401, 401}},
		{"GET", "/v1/stream/arbe-thread-t1", "", [7]int{401, 401, 401, 401, 200, 401, 401}},
		{"DELETE", "/v1/stream/arbe-thread-t1", "", [7]int{401, 401, 401, 401, 403, 401, 401}},
		{"GET", "/v1/stream/notes", "", [7]int{401, 401, 401, 401, 403, 403, 401}},
		{"GET", "/v1/admin/backup", "", [7]int{401, 401, 401, 401, 403, 403, 401}},
	} {
		var probes [2]string // answers about a thread of another house, and one that does not exist
		for i, signed := range who {
			a := s.do(row.method, row.path, signed, row.body)
			if a.status != row.want[i] {
				t.Errorf("%s %s as %d: %d %s, want %d", row.method, row.path, i, a.status, a.body, row.want[i])
			}
			if strings.HasPrefix(row.path, "/api/threads/t1") && i == 1 && row.want[i] == 404 {
				probes[0] = a.body
				probes[1] = s.do(row.method, strings.Replace(row.path, "t1", "never", 1), signed, row.body).body
			}
		}
		if probes[0] != probes[1] {
			t.Errorf("%s %s: answers differ: %s %s", row.method, row.path, probes[0], probes[1])
		}
	}
}

// TestWithoutHouses asks a server without houses for what members do.
func TestWithoutHouses(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	signed := login(t, ann, time.Hour)
	for path, want := range map[string]int{
		"/api/threads": 401, "/api/threads/t1": 401, "/api/threads/t1/entries": 501,
	} {
		if a := s.do("GET", path, signed, ""); a.status != want {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	house := mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeWrite}, House: "h9"})
	if a := s.do("POST", path1, house, by("", "e0")); a.status != 200 {
		t.Errorf("a token of a house: %d %s", a.status, a.body)
	}
}

// TestMemberList lists the threads of the member's houses alone, at once and live, as membership is then.
func TestMemberList(t *testing.T) {
	t.Parallel()
	s, r := newHouses(t)
	listed := func(signed, query string) string {
		t.Helper()
		var all []string
		for cursor := ""; ; {
			a := s.do("GET", "/api/threads?limit=1"+query+cursor, signed, "")
			var page thread.SummaryPage
			if err := json.Unmarshal([]byte(a.body), &page); err != nil || a.status != 200 {
				t.Fatalf("%v, %+v", err, a)
			}
			for _, v := range page.Threads {
				all = append(all, v.ID)
			}
			if cursor = "&cursor=" + page.Cursor; page.Cursor == "" {
				return strings.Join(all, " ")
			}
		}
	}
	house := mint(t, token.Grant{Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}, House: "h1"})
	for _, row := range [][2]string{
		{login(t, ann, time.Hour), "t3 t1"},
		{login(t, bob, time.Hour), "t2"},
		{login(t, eve, time.Hour), ""},
		{house, "t3 t1"},
	} {
		if got := listed(row[0], ""); got != row[1] {
			t.Errorf("got %s, want %s", got, row[1])
		}
	}
	for id, want := range map[string]int{"t1": 200, "t2": 404, "t4": 404} {
		if a := s.do("GET", "/api/threads/"+id, house, ""); a.status != want {
			t.Errorf("%s with the list's token of a house: %d %s", id, a.status, a.body)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.srv.URL+"/api/threads?live=sse", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+login(t, ann, time.Hour))
	resp, err := httpClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func() string {
		for lines.Scan() {
			if line := lines.Text(); strings.HasPrefix(line, "data:") {
				var v struct{ ID string }
				if err := json.Unmarshal([]byte(line[5:]), &v); err != nil {
					t.Fatal(err)
				}
				return v.ID
			}
		}
		t.Fatal(lines.Err())
		return ""
	}
	want := func(id string) {
		t.Helper()
		if got := next(); got != id {
			t.Fatalf("an event of %q, want %q", got, id)
		}
	}
	post := func(id string) {
		t.Helper()
		e := by("", strings.ToLower(fmt.Sprint("more", time.Now().UnixNano())))
		if a := s.do("POST", "/api/stream/arbe-thread-"+id, writer(t, id), e); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	remove := func(id string) {
		t.Helper()
		del := mint(t, token.Grant{Stream: thread.StreamName(id), Scope: []string{token.ScopeDelete}})
		if a := s.do("DELETE", "/v1/stream/arbe-thread-"+id, del, ""); a.status >= 300 {
			t.Fatalf("got %+v", a)
		}
	}
	want("t1")
	want("t3")
	want("") // control
	post("t2")
	post("t4")
	remove("t4")
	post("t3")
	want("t3")
	r.change(func() { r.of["t5"] = "h1" })
	post("t5")
	want("t5")
	r.change(func() { delete(r.of, "t5") })
	remove("t5")
	want("t5")
	r.change(func() { r.houses[ann] = []string{"h2"} }) // she moves
	post("t1")
	post("t2")
	want("t2")
}

// TestMemberPost posts as a member: chats and the end of bots' answers, in its own name, once for each key.
func TestMemberPost(t *testing.T) {
	t.Parallel()
	s, _ := newHouses(t)
	signed := login(t, ann, time.Hour)
	long := strings.Repeat("x", 256<<10)
	for _, row := range []struct {
		body, key string
		status    int
		code      string
	}{
		{`{"payload":{"type":"chat","text":"one"}}`, "k1", 201, ""},
		{`{"payload":{"type":"chat","text":"one"}}`, "k1", 200, ""},
		{`{"payload":{"type":"chat","text":"two"}}`, "k1", 409, "conflict"},
		{`{"payload":{"type":"chat","text":"three"}}`, "", 201, ""},
		{`{"payload":{"type":"chat","text":"three"}}`, "", 201, ""},
		{`{"authorId":"` + ann + `","payload":{"type":"chat","text":"four","deliver":"followUp"}}`, "k2", 201, ""},
		{`{"payload":{"type":"chat","text":"` + long + `"}}`, "", 201, ""},
		{`{"payload":{"type":"chat","text":"` + long + `x"}}`, "", 400, "payload"},
		{`{"payload":{"type":"chat","text":" \n"}}`, "", 400, "payload"},
		{`{"payload":{"type":"chat"}}`, "", 400, "payload"},
		{`{"payload":{"text":"x"}}`, "", 400, "payload"},
		{`{"payload":{"type":"chat","text":"x","deliver":"never"}}`, "", 400, "deliver"},
		{`{"payload":{"type":"chat","text":1}}`, "", 400, "payload"},
		{`{"payload":"chat"}`, "", 400, "payload"},
		{`{}`, "", 400, "payload"},
		{`[{"payload":{"type":"chat","text":"x"}}]`, "", 400, "json"},
		{`{"payload":{"type":"chat","text":"x"}} {}`, "", 400, "json"},
		{``, "", 400, "json"},
		{strings.Repeat(" ", 1<<20) + `{}`, "", 413, "too_large"},
		// What a run or its runner posts.
		{`{"payload":{"type":"chat","text":"x","runId":"r1"}}`, "", 400, "payload"},
		{`{"payload":{"type":"chat","text":"x","session":{"id":"s"}}}`, "", 400, "payload"},
		{`{"payload":{"type":"chat","text":"x","message":{"role":"user"}}}`, "", 400, "payload"},
		{`{"payload":{"type":"pi.assistant","message":{"role":"assistant"}}}`, "", 403, "chats_only"},
		{`{"payload":{"type":"signal.dispatch.cancel_requested","reason":"x"}}`, "", 403, "chats_only"},
		{`{"payload":{"type":"signal.thread.status_changed","status":"failed"}}`, "", 403, "chats_only"},
		{`{"payload":{"type":"chat","TYPE":"signal.x.y","text":"x"}}`, "", 403, "chats_only"},
		{`{"payload":{"type":"signal.dispatch.reaction_finished","reaction":"x_a"}}`, "", 403, "chats_only"},
		{`{"payload":{"type":"chat","text":"x","via":{"threadId":"t2"}}}`, "", 400, "payload"},
		{`{"payload":{"type":"chat","text":"x","quiet":true}}`, "", 400, "payload"},
		// To bots.
		{`{"payload":{"type":"chat","text":"@piet","mentions":["` + bob + `"]}}`, "", 201, ""},
		{`{"payload":{"type":"chat","text":"@piet","mentions":["piet"]}}`, "", 400, "payload"},
		{`{"payload":{"type":"signal.dispatch.reaction_cancel","reaction":"x_a","reason":"enough"}}`, "", 201, ""},
		{`{"payload":{"type":"signal.dispatch.reaction_cancel"}}`, "", 400, "payload"},
		{`{"payload":{"type":"signal.dispatch.reaction_cancel","reaction":"x_a","claim":1}}`, "", 400, "payload"},
		{`{"id":"r1.end.0","payload":{"type":"chat","text":"x"}}`, "", 400, "json"},
		{`{"ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":"x"}}`, "", 400, "json"},
		// Others.
		{`{"authorId":"` + bob + `","payload":{"type":"chat","text":"x"}}`, "", 403, "wrong_author"},
		{`{"authorId":"","payload":{"type":"chat","text":"x"}}`, "", 403, "wrong_author"},
		{`{"payload":{"type":"chat","text":"x"}}`, "a b", 400, "idempotency_key"},
		{`{"payload":{"type":"chat","text":"x"}}`, strings.Repeat("k", 101), 400, "idempotency_key"},
	} {
		var header []string
		if row.key != "" {
			header = []string{"Idempotency-Key", row.key}
		}
		a := s.do("POST", "/api/threads/t1/entries", signed, row.body, header...)
		if a.status != row.status || a.code != row.code {
			t.Errorf("%.100s: %d %s, want %d %s", row.body, a.status, a.body, row.status, row.code)
		}
	}
	a := s.do("GET", "/api/threads/t1/entries?types=chat", signed, "")
	n := 0
	for line := range strings.Lines(a.body) {
		var e thread.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.ID == "e0" {
			continue
		}
		if n++; e.AuthorID != ann || !strings.HasPrefix(e.ID, "member."+ann+".") {
			t.Errorf("the entry %s has the author %q", e.ID, e.AuthorID)
		}
	}
	if n != 6 || !strings.Contains(a.body, `"member.`+ann+`.k1"`) {
		t.Errorf("%d chats: %.2000s", n, a.body)
	}
	// A thread of her house without entries gets its first one.
	one := s.do("POST", "/api/threads/empty/entries", signed, `{"payload":{"type":"chat","text":"x"}}`)
	if one.status != 201 {
		t.Errorf("the first entry: %+v", one)
	}
	// Another member's key is another one.
	s.doors.Rows.(*rows).change(func() { s.doors.Rows.(*rows).houses[bob] = []string{"h1"} })
	a = s.do("POST", "/api/threads/t1/entries", login(t, bob, time.Hour),
		`{"payload":{"type":"chat","text":"two"}}`, "Idempotency-Key", "k1")
	if a.status != 201 {
		t.Errorf("another member's key: %+v", a)
	}
}

// TestHouseTokens holds tokens with a house to the threads of that house.
func TestHouseTokens(t *testing.T) {
	t.Parallel()
	s, r := newHouses(t)
	for _, row := range []struct {
		thread, house string
		status        int
	}{
		{"t1", "h1", 200},
		{"t1", "h2", 403},
		{"t2", "h1", 403},
		{"t4", "h1", 403}, // of no house
		{"t1", "", 200},
		{"t4", "", 200},
	} {
		g := token.Grant{Stream: thread.StreamName(row.thread), Scope: []string{token.ScopeWrite}, House: row.house}
		path := "arbe-thread-" + row.thread
		for method, paths := range map[string][]string{
			"GET":  {"/api/stream/" + path, "/v1/stream/" + path, "/api/threads/" + row.thread},
			"POST": {"/api/stream/" + path},
		} {
			for _, path := range paths {
				body := ""
				if method == "POST" {
					body = by("", "e0")
				}
				a := s.do(method, path, mint(t, g), body)
				if a.status != row.status || row.status == 403 && a.code != "wrong_house" {
					t.Errorf("%s %s as %q: %d %s, want %d", method, path, row.house, a.status, a.body, row.status)
				}
			}
		}
	}
	// A renewed token has the house of the renew token.
	renew := mint(t, token.Grant{
		Stream: thread.StreamName("t1"), Scope: []string{token.ScopeRenew}, Run: "r1", House: "h1",
	})
	a := s.do("POST", path1+"/token", renew, "")
	g, err := token.NewVerifier([][]byte{secret}).Verify(jwtOf(t, a.body))
	if err != nil || g.House != "h1" {
		t.Errorf("%+v, %v", g, err)
	}
	// A house's token is for no other stream, and for no backup.
	for path, g := range map[string]token.Grant{
		"/v1/stream/notes":  {Stream: "notes", Scope: []string{token.ScopeRead}, House: "h1"},
		"/v1/admin/backup":  {Stream: token.SubjectAdmin, Scope: []string{token.ScopeBackup}, House: "h1"},
		"/v1/stream/page/1": {Stream: "page/1", Scope: []string{token.ScopeRead}, House: "h1"},
	} {
		if a := s.do("GET", path, mint(t, g), ""); a.status != 403 || a.code != "wrong_house" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	// Without the rows runs keep posting, and members have to wait.
	r.change(func() { r.away = errors.New("away") })
	for _, id := range []string{"t1", "t3"} { // one whose house was read, and one whose house was not
		g := token.Grant{Stream: thread.StreamName(id), Scope: []string{token.ScopeWrite}, House: "h1"}
		if a := s.do("POST", "/api/stream/arbe-thread-"+id, mint(t, g), by("", "e9")); a.status != 200 {
			t.Errorf("a run's token without rows: %+v", a)
		}
	}
	for _, path := range []string{"/api/threads", "/api/threads/t1", "/api/threads/t1/entries"} {
		a := s.do("GET", path, login(t, ann, time.Hour), "")
		if a.status != 503 || a.code != "houses" || a.header.Get("Retry-After") == "" {
			t.Errorf("%s without rows: %+v", path, a)
		}
	}
}
