package scripts

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestHouses drives the rows of two houses over HTTP, on a real server and a real Postgres.
func TestHouses(t *testing.T) {
	t.Parallel()
	s := startHouses(t)
	s.want(503, "secret_keys", "ann", "PUT", "/api/secrets/KEY", `{"value":"hunter2-hunter2"}`)
	s.end()
	keys := filepath.Join(t.TempDir(), "keys")
	s.do("secret", "key", "new", keys)
	s.serve("--secret-keys", keys)
	s.whoMayWhat()
	s.threads()
	s.tasks()
	s.deletes(keys)
	s.environments()
	s.secrets()
	s.away()
}

// whoMayWhat is each route and method for a member of another house, of none, without a token, with a thread's token,
// for a member and for an owner of the house.
func (s *houseServer) whoMayWhat() {
	t := s.t
	who := []string{"bob", "eve", "nobody", "t1", "cid", "ann"}
	chat := `{"payload":{"type":"chat","text":"hello"}}`
	for _, row := range []struct {
		method, path, body string
		want               [6]int
	}{
		{"GET", "/api/threads", "", [6]int{200, 200, 401, 403, 200, 200}},
		{"GET", "/api/threads?house=h1", "", [6]int{404, 404, 401, 403, 200, 200}},
		{"POST", "/api/threads", `{"house":"h1"}`, [6]int{404, 404, 401, 401, 201, 201}},
		{"GET", "/api/threads/t1", "", [6]int{404, 404, 401, 404, 200, 200}},
		{"POST", "/api/threads/t1/entries", chat, [6]int{404, 404, 401, 401, 201, 201}},
		{"GET", "/api/threads/t1/entries", "", [6]int{404, 404, 401, 401, 200, 200}},
		{"POST", "/api/threads/t1/reconcile", "", [6]int{404, 404, 401, 200, 200, 200}},
		{"POST", "/api/threads/t1/commands", `{"command":"ls"}`, [6]int{404, 404, 401, 501, 501, 501}}, // no provider
		{"POST", "/api/threads/t1/commands/c1/cancel", "", [6]int{404, 404, 401, 404, 404, 404}},
		{"PATCH", "/api/threads/t1", `{"name":"x"}`, [6]int{404, 404, 401, 401, 200, 200}},
		{"DELETE", "/api/threads/g1", "", [6]int{404, 404, 401, 401, 204, 404}},
		{"DELETE", "/api/threads/g2", "", [6]int{404, 404, 401, 401, 204, 404}},
		{"GET", "/api/environments?house=h1", "", [6]int{404, 404, 401, 401, 200, 200}},
		{"POST", "/api/environments", `{"house":"h1","name":"x"}`, [6]int{404, 404, 401, 401, 201, 201}},
		{"GET", "/api/environments/e1", "", [6]int{404, 404, 401, 401, 200, 200}},
		{"PUT", "/api/environments/e1", `{"name":"base"}`, [6]int{404, 404, 401, 401, 200, 200}},
		{"PATCH", "/api/environments/e1", `{"name":"base"}`, [6]int{404, 404, 401, 401, 200, 200}},
		{"DELETE", "/api/environments/e1", "", [6]int{404, 404, 401, 401, 200, 200}},                       // in use
		{"PATCH", "/api/environments/e1", `{"archived":false}`, [6]int{404, 404, 401, 401, 200, 200}},      // again
		{"GET", "/api/secrets?house=h1", "", [6]int{404, 404, 401, 401, 200, 200}},                         // names
		{"PUT", "/api/secrets/KEY?house=h1", `{"value":"12345678"}`, [6]int{404, 404, 401, 401, 403, 200}}, // owners
		{"DELETE", "/api/secrets/KEY?house=h1", "", [6]int{404, 404, 401, 401, 403, 204}},                  // owners
		{"DELETE", "/api/secrets/KEY?house=h1", "", [6]int{404, 404, 401, 401, 404, 404}},                  // gone
		{"PUT", "/api/secrets/A-B?house=h1", `{"value":"12345678"}`, [6]int{404, 404, 401, 401, 400, 400}}, // no variable
		{"PUT", "/api/secrets/KEY?house=no", `{"value":"12345678"}`, [6]int{404, 404, 401, 401, 404, 404}}, // no house
	} {
		for i, name := range who {
			if row.path == "/api/threads/t1" && name == "t1" && row.method == "GET" {
				continue // below: it depends on whether the thread has entries
			}
			status, answer := s.ask(name, row.method, row.path, row.body)
			if status != row.want[i] {
				t.Errorf("%s %s as %s: %d %s, want %d", row.method, row.path, name, status, answer, row.want[i])
			}
			if i > 1 || status != 404 {
				continue
			}
			absent := strings.NewReplacer("/t1", "/nosuch", "/g1", "/nosuch", "/g2", "/nosuch", "/e1", "/nosuch",
				"=h1", "=nosuch").Replace(row.path)
			body := strings.ReplaceAll(row.body, `"h1"`, `"nosuch"`)
			if again, other := s.ask(name, row.method, absent, body); again != status || other != answer {
				t.Errorf("%s %s as %s: %d %s, and of one that does not exist: %d %s", row.method, row.path, name,
					status, answer, again, other)
			}
		}
	}
	s.want(200, `"id":"t1"`, "t1", "GET", "/api/threads/t1", "")
	// A command can't have another house's environment, or none.
	s.want(400, "command", "ann", "POST", "/api/threads/t1/commands", `{"command":"ls","environment":"e2"}`)
	s.want(400, "command", "ann", "POST", "/api/threads/t1/commands", `{"command":"ls","environment":"e9"}`)
	s.want(400, "command", "ann", "POST", "/api/threads/t1/commands", `{"command":""}`)
	// What names another house's rows, or none.
	for _, of := range []string{"parent", "environment", "agent"} {
		foreign := map[string]string{"parent": "t2", "environment": "e2", "agent": alf}[of]
		absent := map[string]string{"parent": "t9", "environment": "e9", "agent": eve}[of]
		a := s.want(400, "reference", "ann", "POST", "/api/threads", `{"`+of+`":"`+foreign+`"}`)
		b := s.want(400, "reference", "ann", "POST", "/api/threads", `{"`+of+`":"`+absent+`"}`)
		if a != b || strings.Contains(a, "SQLSTATE") {
			t.Errorf("a foreign %s: %s, an absent one: %s", of, a, b)
		}
	}
	s.want(400, "reference", "ann", "PATCH", "/api/threads/t1", `{"environment":"e2"}`)
	s.want(400, "no bot", "ann", "POST", "/api/threads", `{"agent":"`+cid+`"}`)
}

// threads makes, lists and changes threads.
func (s *houseServer) threads() {
	t := s.t
	key := []string{"Idempotency-Key", "k1"}
	made := s.want(201, `"name":"plan","tags":\["a","b"\],"pinned":true`, "ann", "POST", "/api/threads",
		`{"house":"h1","name":"plan","tags":["a","b"],"pinned":true,"environment":"e1","config":{"x":1}}`, key...)
	id := s.idOf(made)
	again := s.want(200, `"environment":"e1"`, "ann", "POST", "/api/threads", `{"name":"plan"}`, key...)
	other := s.idOf(s.want(201, "", "cid", "POST", "/api/threads", `{}`, key...))
	if s.idOf(again) != id || other == id {
		t.Errorf("the same key: %s, and another member's: %s", again, other)
	}
	s.want(409, "exists", "ann", "POST", "/api/threads", `{"parent":"`+other+`"}`, key...)
	s.want(201, `"id":"mine"`, "ann", "POST", "/api/threads", `{"id":"mine","parent":"`+id+`","agent":"`+bot+`"}`)
	s.want(200, `"parentThread":"`+id, "ann", "POST", "/api/threads",
		`{"id":"mine","parent":"`+id+`","agent":"`+bot+`"}`)
	s.do("thread", "post", "hosts", "of no house")
	for _, taken := range []string{"t2", "hosts"} { // of another house, of none
		s.want(409, "exists", "ann", "POST", "/api/threads", `{"id":"`+taken+`"}`)
	}
	s.want(404, "", "ann", "GET", "/api/threads/hosts", "")
	for path, method := range map[string]string{"/api/threads": "POST", "/api/threads/mine": "PATCH"} {
		s.want(400, `"code":"value","message":"config: not valid: dispatch.perAgent.Piet: want the id of an agent`, "ann",
			method, path, `{"config":{"dispatch":{"perAgent":{"Piet":{}}}}}`)
		s.want(400, "dispatch.of: unknown key: want off, perAgent", "ann", method, path,
			`{"config":{"dispatch":{"of":true}}}`)
	}
	s.want(200, `"config":{"mine":7,"dispatch":{"off":true}}`, "ann", "PATCH", "/api/threads/mine",
		`{"config":{"mine":7,"dispatch":{"off":true}}}`)
	s.want(400, "value", "ann", "POST", "/api/threads", `{"id":"_box_1"}`)
	s.want(400, "json", "ann", "POST", "/api/threads", `{"status":"running"}`)
	s.want(413, "too_large", "ann", "POST", "/api/threads", `{"name":"`+strings.Repeat("x", 300<<10)+`"}`)
	s.want(200, `^$`, "ann", "GET", "/api/threads/"+id+"/entries", "") // it is there, and empty
	s.want(200, `"status":"idle".*"house":"h1"`, "ann", "GET", "/api/threads/"+id, "")

	for filter, want := range map[string]string{
		"tag=a": id, "tag=a&tag=b&pinned=true": id, "tag=a&tag=c": "", "parent=" + id: "mine", "status=running": "",
		"house=h1&tag=b&status=idle": id, "tag=a&harness=pi": "",
	} {
		for _, who := range []string{"ann", "list"} {
			query := filter
			if who == "list" && !strings.Contains(filter, "house=") {
				query += "&house=h1"
			}
			if got := s.listed(who, query); got != want {
				t.Errorf("?%s as %s: %q, want %q", query, who, got, want)
			}
		}
		if got := s.listed("bob", strings.Replace(filter, "h1", "h2", 1)); got != "" {
			t.Errorf("?%s in another house: %q", filter, got)
		}
	}
	s.want(400, "house", "list", "GET", "/api/threads?tag=a", "")
	s.want(400, "pinned", "ann", "GET", "/api/threads?pinned=maybe", "")
	s.want(400, "cursor", "ann", "GET", "/api/threads?cursor=row.x", "")
	if all := strings.Fields(s.listed("ann", "limit=1")); len(all) < 5 || slices.Contains(all, "t2") {
		t.Errorf("the list, page by page: %s", all)
	}

	s.want(200, `"name":"new","tags":\[\],"pinned":false`, "cid", "PATCH", "/api/threads/"+id,
		`{"name":"new","tags":[],"pinned":false,"environment":""}`)
	s.want(200, `"closed":true`, "cid", "PATCH", "/api/threads/"+id, `{"closed":true}`)
	chat := `{"payload":{"type":"chat","text":"hello"}}`
	s.want(409, "closed", "ann", "POST", "/api/threads/"+id+"/entries", chat)
	s.want(200, `"tags"`, "cid", "PATCH", "/api/threads/"+id, `{"closed":false}`)
	s.want(201, "", "ann", "POST", "/api/threads/"+id+"/entries", chat)
	s.want(400, "status", "ann", "PATCH", "/api/threads/mine", `{"closed":true}`)
	s.want(400, "value", "ann", "PATCH", "/api/threads/"+id, `{"name":"a\u0000b"}`)
}

// tasks delegates a task again and again, another one with the same key, and one from a thread that is closed.
func (s *houseServer) tasks() {
	s.want(201, "", "ann", "POST", "/api/threads", `{"id":"plans","environment":"e1"}`)
	order := func(status int, pattern, body, key string) string {
		s.t.Helper()
		return s.want(status, pattern, "ann", "POST", "/api/threads/plans/tasks", body, "Idempotency-Key", key)
	}
	first := order(201, `"threadId"`, `{"task":"do it"}`, "k1")
	for differs, body := range map[string]string{
		"task": `{"task":"another"}`, "environment": `{"task":"do it","environment":"e1"}`,
		"agent": `{"task":"do it","agent":"` + bot + `","harness":"pi"}`, "sandbox": `{"task":"do it","sandbox":"parent"}`,
		"harness": `{"task":"do it","harness":"codex"}`, "repo": `{"task":"do it","repo":"a/web"}`,
	} {
		order(409, `"exists".*another order: its `+differs+` differs`, body, "k1")
	}
	s.want(200, `"closed":true`, "ann", "PATCH", "/api/threads/plans", `{"closed":true}`)
	order(409, `"closed".*thread plans: the thread is closed: open it again`, `{"task":"do it"}`, "k2")
	if again := order(200, "", `{"task":"do it"}`, "k1"); again != first {
		s.t.Errorf("the task is %s, and then %s", first, again)
	}
}

// listed returns the ids of the threads of a list, all of its pages.
func (s *houseServer) listed(who, query string) string {
	s.t.Helper()
	var ids []string
	for cursor := ""; ; {
		answer := s.want(200, "", who, "GET", "/api/threads?"+query+cursor, "")
		var page struct {
			Threads []struct{ ID, House string }
			Cursor  string
		}
		if err := json.Unmarshal([]byte(answer), &page); err != nil {
			s.t.Fatal(err)
		}
		for _, v := range page.Threads {
			if ids = append(ids, v.ID); v.House == "" {
				s.t.Errorf("%s has no house: %s", v.ID, answer)
			}
		}
		if cursor = "&cursor=" + page.Cursor; page.Cursor == "" {
			return strings.Join(ids, " ")
		}
	}
}

// signal returns an entry of the run r1.
func signal(id, payload string) string {
	return `{"id":"` + id + `","ts":"2026-01-01T00:00:00.000Z","payload":{"runId":"r1","harness":"pi",` + payload + `}}`
}

// deletes deletes threads, of which one has a run that the server has to settle first.
func (s *houseServer) deletes(keys string) {
	t := s.t
	s.want(201, "", "ann", "POST", "/api/threads", `{"id":"top"}`)
	s.want(201, "", "ann", "POST", "/api/threads", `{"id":"below","parent":"top","agent":"`+bot+`"}`)
	s.tokens["below"] = strings.TrimSpace(s.do("token", "mint", "--thread", "below"))
	running := signal("r1.running", `"type":"signal.thread.status_changed","status":"running"`)
	s.want(200, "", "below", "POST", "/api/stream/arbe-thread-below", running)
	s.want(409, "running", "ann", "DELETE", "/api/threads/top", "")
	s.want(200, `"top"`, "ann", "GET", "/api/threads/top", "")
	s.want(200, "r1.running", "ann", "GET", "/api/threads/below/entries", "")

	// A claim that the log does not know yet.
	if err := query(s.db, `update threads set status = 'running', claimed_run = 'r9', claimed_at = now()
		where id = 'mine'`); err != nil {
		t.Fatal(err)
	}
	s.want(409, "running", "ann", "DELETE", "/api/threads/mine", "")
	s.want(200, `"status":"running"`, "ann", "GET", "/api/threads/mine", "")

	// The run is silent for too long.
	s.end()
	s.serve("--secret-keys", keys, "--orphan-after", "1s")
	s.until("the server settles the thread", func() bool {
		_, answer := s.ask("cid", "GET", "/api/threads/below", "")
		return strings.Contains(answer, `"status":"failed"`)
	})
	s.until("the row follows", func() bool {
		status, _ := s.ask("ann", "DELETE", "/api/threads/top", "")
		return status == 204
	})
	for _, id := range []string{"top", "below"} {
		s.want(404, "", "ann", "GET", "/api/threads/"+id, "")
		s.want(404, "", "ann", "DELETE", "/api/threads/"+id, "")
	}
	s.want(410, `"gone"`, "below", "GET", "/api/stream/arbe-thread-below", "")
}

// environments makes, changes and deletes environments.
func (s *houseServer) environments() {
	made := s.want(201, `"runtime":"daytona","config":\{\},"secretBindings":\[\]`, "cid", "POST", "/api/environments",
		`{"house":"h1","name":"node"}`)
	at := "/api/environments/" + s.idOf(made)
	s.want(200, `"runtime":"local","config":\{"repositories":\[\{"path":"web","repo":"a/web"\}\]\},`+
		`"secretBindings":\[\{"name":"KEY","required":true\},\{"name":"B","required":false\}\]`, "cid", "PUT", at,
		`{"name":"node","runtime":"local","config":{"repositories":[{"repo":"a/web"}]},`+
			`"secretBindings":[{"name":"KEY"},{"name":"B","required":false}]}`)
	s.want(400, "image: a local box has none", "cid", "PATCH", at, `{"config":{"image":"node"}}`)
	s.want(400, "env: .*; limits.run: want a duration", "cid", "PATCH", at, `{"config":{"env":1,"limits":{"run":"soon"}}}`)
	s.want(400, "stand beside it", "cid", "PATCH", at, `{"config":{"name":"x"}}`)
	s.want(200, `"name":"other","runtime":"local".*KEY`, "cid", "PATCH", at, `{"name":"other"}`)
	for _, bad := range []string{
		`{}`, `{"name":""}`, `{"name":"x","config":[]}`, `{"name":"x","secretBindings":[{"name":"A-B"}]}`, `{"name":"x","id":"y"}`,
		`{"name":"x","config":{"a":"\u0000"}}`,
	} {
		s.want(400, "", "ann", "POST", "/api/environments", bad)
		if bad != "{}" {
			s.want(400, "", "ann", "PUT", at, bad)
		}
	}
	s.want(204, "", "cid", "DELETE", at, "")
	s.want(404, "", "cid", "DELETE", at, "")
	s.want(201, "", "ann", "POST", "/api/threads", `{"id":"uses","environment":"e1"}`)
	s.want(200, "archivedAt", "cid", "DELETE", "/api/environments/e1", "")
	s.want(409, "archived", "ann", "POST", "/api/threads", `{"environment":"e1"}`)
	s.want(409, "archived", "ann", "PATCH", "/api/threads/mine", `{"environment":"e1"}`)
	s.want(200, `"archivedAt"`, "ann", "GET", "/api/environments", "")
}

// secrets puts values, and looks for them everywhere.
func (s *houseServer) secrets() {
	t := s.t
	const value = "hunter2-hunter2-hunter2"
	s.want(200, `^\{"name":"KEY","house":"h1","createdAt":"[^"]*"\}\n$`, "ann", "PUT", "/api/secrets/KEY", `{"value":"`+value+`"}`)
	for _, bad := range []string{
		`{"value":7` + value + `}`, `{"` + value + `":1}`, `{"value":"","x":"` + value + `"}`, `"` + value + `"`,
		`{"value":"` + value + `\u0000"}`, `{"value":"` + value + `\ud800"}`, `{"value":"` + value + "\xff\"}",
	} {
		answer := s.want(400, "", "ann", "PUT", "/api/secrets/KEY", bad)
		if strings.Contains(answer, "hunter2") {
			t.Errorf("an error has the value: %s", answer)
		}
	}
	s.want(400, "", "ann", "PUT", "/api/secrets/KEY", `{"value":"`+strings.Repeat("x", 64<<10+1)+`"}`)
	s.want(413, "", "ann", "PUT", "/api/secrets/KEY", `{"value":"`+strings.Repeat("x", 600<<10)+`"}`)
	for _, path := range []string{"/api/secrets", "/api/secrets?house=h1", "/api/environments", "/api/threads"} {
		if answer := s.want(200, "", "ann", "GET", path, ""); strings.Contains(answer, "hunter2") {
			t.Errorf("%s has the value: %s", path, answer)
		}
	}
	s.want(405, "", "ann", "GET", "/api/secrets/KEY", "")
	if err := query(s.db, `select case when position('hunter2' in (select string_agg(encode(ciphertext, 'escape'), '')
		from secret_values)) = 0 and exists (select from secret_values) then 'sealed' end`, "sealed"); err != nil {
		t.Error(err)
	}
	if log := s.said.String(); strings.Contains(log, "hunter2") || !strings.Contains(log, "/api/secrets/KEY") {
		t.Errorf("the logs: %.2000s", log)
	}
}

// away has the database go and come again.
func (s *houseServer) away() {
	t := s.t
	if err := s.pg.Kill(); err != nil {
		t.Fatal(err)
	}
	for path, method := range map[string]string{
		"/api/threads": "GET", "/api/threads/t1": "GET", "/api/environments/e1": "GET", "/api/secrets": "GET",
		"/api/threads/mine": "DELETE",
	} {
		s.want(503, `"code":"houses"`, "ann", method, path, "")
	}
	s.want(200, "", "t1", "POST", "/api/stream/arbe-thread-t1",
		`{"id":"away","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":"on"}}`)
	s.want(200, `"id":"t1"`, "list", "GET", "/api/threads", "")
	if err := s.pg.Restart(); err != nil {
		t.Fatal(err)
	}
	s.until("the database is back", func() bool {
		status, _ := s.ask("ann", "GET", "/api/threads/t1", "")
		return status == 200
	})
}
