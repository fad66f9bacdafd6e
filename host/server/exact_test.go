package server_test

import (
	"fmt"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// posted is an entry with this id and payload.
func posted(id, payload string) string {
	return fmt.Sprintf(`{"id":%q,"ts":"2026-01-01T00:00:00.000Z","payload":%s}`, id, payload)
}

// A token for one run can neither speak for another run nor take the ids that are another run's, by no way into the
// server and no spelling.
func TestRunIsExact(t *testing.T) {
	s := newServer(t)
	const ended = `"type":"signal.thread.status_changed","harness":"pi","status":"completed"`
	chat, line := `{"type":"chat","text":"x"}`, `{"type":"pi.session","session":{"id":"s"}}`
	tries := []struct {
		name, entry string
		want        int
	}{
		{"its own signal", posted("A.running", `{`+ended+`,"runId":"A"}`), 200},
		{"its own end", posted("A.end.0", `{`+ended+`,"runId":"A"}`), 200},
		{"its prompt", posted("A.prompt", `{"type":"chat","text":"x","runId":"A"}`), 200},
		{"a chat", posted("c", chat), 403},
		{"a chat with its run", posted("c", `{"type":"chat","text":"x","runId":"A"}`), 403},
		{"a prompt of no run", posted("A.prompt", chat), 403},
		{"another's prompt under its id", posted("A.prompt", `{"type":"chat","text":"x","runId":"B"}`), 403},
		{"a chat whose session is none", posted("c", `{"type":"chat","text":"x","session":"s"}`), 403},
		{"a user's line", posted("pi:s:1", `{"type":"chat","text":"x","session":{"id":"s"}}`), 200},
		{"a member's id", posted("member.ann.k", line), 403},
		{"a member's id, as a line's", posted("member.ann.k", `{"type":"chat","text":"x","session":{"id":"s"}}`), 403},
		{"a decision's id", posted("d_abc.decided", line), 403},
		{"a reaction's id", posted("x_abc.claim.0", line), 403},
		{"a post of a reaction", posted("x_abc-0-1", line), 403},
		{"a reaction", posted("pi:s:1", `{"type":"pi.assistant","reaction":{"id":"x_abc"}}`), 403},
		{"a decision", posted("q", `{"type":"signal.dispatch.decided","trigger":"c","depth":0,"bots":[]}`), 403},
		{"a claim", posted("q", `{"type":"signal.dispatch.reaction_claimed","reaction":"x_abc","claim":0}`), 403},
		{"a bot's text", posted("q", `{"type":"signal.dispatch.delta","from":0,"text":"x"}`), 403},
		{"a sign of life", posted("q", `{"type":"signal.dispatch.reaction_alive","reaction":"x_abc","claim":0}`), 403},
		{"a reaction's end", posted("q", `{"type":"signal.dispatch.reaction_finished","reaction":"x_abc"}`), 403},
		{"via", posted("pi:s:1", `{"type":"chat","text":"x","session":{"id":"s"},"via":{"depth":0}}`), 403},
		{"quiet", posted("pi:s:1", `{"type":"chat","text":"x","session":{"id":"s"},"quiet":true}`), 403},
		{"not quiet", posted("A.prompt", `{"type":"chat","text":"x","runId":"A","quiet":false}`), 403},
		{"its box", posted("A.sandbox", `{"type":"signal.dispatch.sandbox","runId":"A","sandbox":{"ref":"b"}}`), 403},
		{
			"its box, of a later attempt",
			posted("A.sandbox.0123456789ab", `{"type":"signal.dispatch.sandbox","runId":"A","sandbox":{"ref":"b"}}`),
			403,
		},
		{"its box under an id of its own", posted("q", `{"type":"signal.dispatch.sandbox","runId":"A"}`), 403},
		{"its box's id with a line", posted("A.sandbox", line), 403},
		{"its push", posted("A.push.0", `{"type":"signal.dispatch.push","runId":"A","pushed":true}`), 403},
		{"its push under an id of its own", posted("q", `{"type":"signal.dispatch.push","runId":"A"}`), 403},
		{"its copy back", posted("q", `{"type":"signal.dispatch.sync","runId":"A"}`), 403},
		{"its box's end", posted("A.kept.0", `{"type":"signal.dispatch.sandbox_kept","runId":"A"}`), 403},
		{"a step of its box", posted("A.setup.0", `{"type":"signal.setup.command","runId":"A"}`), 403},
		{"a guess about itself", posted("A.orphan.0", `{"type":"signal.thread.pi_session_orphaned","runId":"A"}`), 403},
		{"its parent", posted("A.running", `{`+ended+`,"runId":"A","parent":{"threadId":"p"}}`), 403},
		{"a child", posted("c1.spawn", `{"type":"signal.thread.agent_spawn","runId":"A"}`), 403},
		{"a child's id", posted("c1.spawn", line), 403},
		{"that a task waits", posted("q", `{"type":"signal.thread.task_waits","runId":"A"}`), 403},
		{"a waiting task's id", posted("c1.waits", line), 403},
		{"a child's end", posted("c1.r.finished", line), 403},
		{"a child's result, corrected", posted("c1.r.result.corrected", line), 403},
		{"a box's successor", posted("sandbox.s1.resumed", line), 403},
		{"a command", posted("B.exec.0", `{"type":"signal.exec.started","execId":"B","command":"x"}`), 403},
		{"a command of its own", posted("A.exec.0", `{"type":"signal.exec.started","execId":"A","command":"x"}`), 403},
		{"the end of a command", posted("q", `{"type":"signal.exec.cancel_requested","runId":"A","execId":"B"}`), 403},
		{
			"the end of another's under its id",
			posted("A.exec.1", `{"type":"signal.exec.cancel_requested","execId":"B"}`), 403,
		},
		{"another's output under its id", posted("A.exec.1", `{"type":"signal.exec.output","execId":"B"}`), 403},
		{"its output", posted("A.exec.1", `{"type":"signal.exec.output","execId":"A","text":"x"}`), 200},
		{
			"a mirrored line",
			posted("pi:s.end.0", `{"type":"pi.session","line":{"Type":"y","runId":"B"},"message":{"RUNID":1}}`),
			200,
		},
		{"an id with a dot", posted("hello.world", line), 200},
		{"another run's signal", posted("x", `{`+ended+`,"runId":"B"}`), 403},
		{"a signal of no run", posted("x", `{`+ended+`}`), 403},
		{"RunId", posted("x", `{`+ended+`,"runId":"A","RunId":"B"}`), 400},
		{"RunId alone", posted("x", `{`+ended+`,"RunId":"B"}`), 400},
		{"runId twice", posted("x", `{`+ended+`,"runId":"A","runId":"B"}`), 400},
		{"runId twice, the other way", posted("x", `{`+ended+`,"runId":"B","runId":"A"}`), 400},
		{"runId, escaped", posted("x", `{`+ended+`,"runId":"A","run\u0049d":"B"}`), 400},
		{
			"Type",
			posted("x", `{"type":"chat","Type":"signal.thread.status_changed","runId":"B","status":"completed"}`),
			400,
		},
		{"type twice", posted("x", `{"type":"chat",`+ended+`,"runId":"B"}`), 400},
		{"a long s", posted("x", `{`+ended+`,"runId":"A","\u017ftatus":"failed"}`), 400},
		{"runId is no string", posted("x", `{`+ended+`,"runId":["A"]}`), 400},
		{
			"Payload",
			strings.Replace(posted("x", chat), `"payload"`, `"Payload":{`+ended+`,"runId":"B"},"payload"`, 1),
			400,
		},
		{"payload twice", strings.Replace(posted("x", chat), `"payload"`,
			`"payload":{`+ended+`,"runId":"B"},"payload"`, 1), 400},
		{"the end's id", posted("B.end.0", chat), 403},
		{"the prompt's id", posted("B.prompt", chat), 403},
		{"running's id", posted("B.running", chat), 403},
		{"an orphan's id", posted("B.orphan.1", chat), 403},
		{"a heartbeat's id", posted("B.beat.12", `{"type":"pi.session"}`), 403},
		{"another's id with its own signal", posted("B.end.0", `{`+ended+`,"runId":"A"}`), 403},
		{"a claim", posted("run.1", chat), 403},
	}
	n := 0
	for _, tt := range tries {
		for _, way := range []string{"POST /api/stream/", "array /api/stream/", "POST /v1/stream/", "PUT /v1/stream/"} {
			n++
			id := fmt.Sprintf("x%d", n)
			token := mint(t, token.Grant{Stream: thread.StreamName(id), Scope: []string{token.ScopeWrite}, Run: "A"})
			method, path, _ := strings.Cut(way, " ")
			body, status := tt.entry, tt.want
			switch method {
			case "array":
				method, body = "POST", "["+posted("first", line)+","+tt.entry+"]"
			case "PUT":
				if status == 200 {
					status = 201
				}
			default:
				if path == "/v1/stream/" {
					if a := s.do("PUT", path+"arbe-thread-"+id, token, ""); a.status != 201 {
						t.Fatalf("%+v", a)
					}
					if status == 200 {
						status = 204
					}
				}
			}
			a := s.do(method, path+"arbe-thread-"+id, token, body)
			if a.status != status || status >= 400 && (len(a.bad) != 1 || a.bad[0].Reason == "") {
				t.Errorf("%s, %s: %d %s, want %d", tt.name, way, a.status, a.body, status)
			}
			got := s.do("GET", "/api/stream/arbe-thread-"+id, token, "")
			if strings.Contains(got.body, `"payload"`) != (status < 400) {
				t.Errorf("%s, %s: the thread has %q", tt.name, way, got.body)
			}
			if status < 400 {
				continue
			}
			// A token without a run may use these ids.
			free := s.do("POST", "/api/stream/arbe-thread-free", writer(t, "free"), tt.entry)
			if ok := free.status == 200 || free.status == 409; ok != (tt.want == 403) {
				t.Errorf("%s, without a run: %d %s", tt.name, free.status, free.body)
			}
		}
	}
}

// An entry is measured as it is stored and sent, all of it is bounded, and what is stored can be read.
func TestLargeEntryIsRefused(t *testing.T) {
	s := newServer(t)
	token := writer(t, "t1")
	with := func(member, value string) string {
		return strings.Replace(
			posted("x", `{"type":"chat","text":"x"}`),
			`"ts"`,
			fmt.Sprintf(`%q:%q,"ts"`, member, value),
			1,
		)
	}
	largest := func(id string, over int) string {
		size := len(posted(id, `{"type":"chat","text":""}`)) + len(`,"at":"2026-01-01T00:00:00.000Z"`)
		return posted(id, `{"type":"chat","text":"`+strings.Repeat("x", thread.MaxEntry-size+over)+`"}`)
	}
	spaced := strings.Replace(largest("spaced", 0), `,"ts"`, strings.Repeat(" ", 1<<20)+`,"ts"`, 1)
	for _, tt := range []struct {
		name, entry string
		want        int
	}{
		{"an author of 20 MB", with("authorId", strings.Repeat("x", 20<<20)), 400},
		{"an author of line separators", with("authorId", strings.Repeat("\u2028", 8<<20/3-100)), 400},
		{"a ts of 1 MB", strings.Replace(posted("x", `{"type":"chat"}`), "00.000Z",
			"00."+strings.Repeat("0", 1<<20)+"Z", 1), 400},
		{"one byte too many", largest("x", 1), 413},
		{"invalid UTF-8", posted("x", "{\"type\":\"chat\",\"text\":\"\xc3\"}"), 400},
		{"nested 9,000 deep", posted("x", `{"type":"chat","x":`+
			strings.Repeat("[", 9000)+strings.Repeat("]", 9000)+`}`), 400},
		{"not a byte too many", largest("full", 0), 200},
		{"of line separators", posted("separators", `{"type":"chat","text":"`+
			strings.Repeat("\u2028", (thread.MaxEntry-1<<10)/3)+`"}`), 200},
		{"of spaces that are not stored", spaced, 200},
		{"an author", with("authorId", strings.Repeat("\u2028", 85)), 200},
	} {
		for _, array := range []bool{false, true} {
			body := tt.entry
			if array {
				body = "[" + posted("beside", `{"type":"chat","text":"x"}`) + "," + tt.entry + "]"
			}
			a := s.do("POST", path1, token, body)
			if a.status != tt.want || tt.want != 200 && len(a.bad) != 1 {
				t.Errorf("%s, array %v: %d %.300s, want %d", tt.name, array, a.status, a.body, tt.want)
			}
		}
	}
	var got []string
	c := &client.Client{Base: thread.BaseURL(s.srv.URL), Thread: "t1", Token: client.StaticToken(token)}
	_, err := c.Read(t.Context(), "0", false, func(e thread.Entry) error {
		if e.Size() > thread.MaxEntry {
			t.Errorf("%s has %d bytes", e.ID, e.Size())
		}
		got = append(got, e.ID)
		return nil
	})
	if want := "full beside separators spaced x"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
}

// A log that holds entries from before they were bounded can be read.
func TestLargeOldEntryIsRead(t *testing.T) {
	s := newServer(t)
	old := thread.Entry{
		ID: "old", TS: "2026-01-01T00:00:00.000Z", AuthorID: strings.Repeat("\u2028", 8<<20),
		Payload: []byte("{\"type\":\"chat\",\"Type\":7,\"text\":\"\xff\"}"),
	}
	next := thread.Entry{ID: "next", TS: old.TS, Payload: []byte(`{"type":"chat","text":"x"}`)}
	if _, err := s.log.Append(t.Context(), "t1", []thread.Entry{old, next}); err != nil {
		t.Fatal(err)
	}
	var got []string
	c := &client.Client{Base: thread.BaseURL(s.srv.URL), Thread: "t1", Token: client.StaticToken(writer(t, "t1"))}
	_, err := c.Read(t.Context(), "0", false, func(e thread.Entry) error {
		got = append(got, e.ID)
		return nil
	})
	if err != nil || strings.Join(got, " ") != "old next" {
		t.Errorf("%v, %v", got, err)
	}
	// Its id is taken for good.
	if a := s.do("POST", path1, writer(t, "t1"), posted("old", `{"type":"chat","text":"x"}`)); a.status != 409 {
		t.Errorf("%d %.200s", a.status, a.body)
	}
}

// Headers that can't be kept as they are given are refused, and none ends a request with a panic.
func TestHeadersAreExact(t *testing.T) {
	s, _ := newWatched(t)
	n := 0
	put := func(header ...string) answer {
		n++
		header = append([]string{"Content-Type", "text/plain"}, header...)
		return s.do("PUT", fmt.Sprintf("/v1/stream/s%d", n), "", "", header...)
	}
	for value, want := range map[string]int{
		"2036-01-01T00:00:00Z": 201, "2036-01-01T00:00:00.5+23:59": 201, "9999-12-31T23:59:59Z": 201,
		"2036-01-01T00:00:00+24:00": 400,
		"2036-01-01T00:00:00-24:30": 400, "9999-12-31T23:59:59-23:59": 400, "0000-01-01T00:00:00+23:59": 400,
		"2036-01-01T0:00:00Z":    400,
		"2036-01-01T00:00:00,5Z": 400, "2036-01-01": 400, "": 400,
	} {
		if a := put("Stream-Expires-At", value); a.status != want {
			t.Errorf("Stream-Expires-At %q: %d %s, want %d", value, a.status, a.body, want)
		}
	}
	if a := put(); a.status != 201 {
		t.Fatal(a)
	}
	path := fmt.Sprintf("/v1/stream/s%d", n)
	post := func(header ...string) int {
		return s.do("POST", path, "", "x", append([]string{"Content-Type", "text/plain"}, header...)...).status
	}
	for _, tt := range []struct {
		header, value string
		want          int
	}{
		{"Stream-Seq", "a", 204},
		{"Stream-Seq", "a", 409},
		{"Stream-Seq", "é", 204},
		{"Stream-Seq", "é", 409},
		{"Stream-Seq", "\xff", 400},
		{"Stream-Seq", "\xff", 400},
		{"Stream-Seq", "", 400},
		{"Stream-Seq", strings.Repeat("\xef", 257), 400},
		{"Stream-Seq", "\u07ff" + strings.Repeat("z", 255), 400},
	} {
		if got := post(tt.header, tt.value); got != tt.want {
			t.Errorf("%s %q: %d, want %d", tt.header, tt.value, got, tt.want)
		}
	}
	if got := post("Producer-Id", "\xff", "Producer-Epoch", "0", "Producer-Seq", "0"); got != 400 {
		t.Errorf("Producer-Id: %d", got)
	}
	for _, twice := range []string{
		"Stream-Seq: b\r\nStream-Seq: c\r\n",
		"Producer-Id: a\r\nProducer-Id: b\r\nProducer-Epoch: 0\r\nProducer-Seq: 0\r\n",
	} {
		if got, body := s.raw("POST", path, "", twice, "x"); got != 400 || !strings.Contains(body, "once") {
			t.Errorf("%q: %d %s", twice, got, body)
		}
	}
	for _, twice := range []string{
		"Stream-TTL: 5\r\nStream-TTL: 6\r\n",
		"Stream-Expires-At: 2036-01-01T00:00:00Z\r\nStream-Expires-At: 2037-01-01T00:00:00Z\r\n",
	} {
		if got, body := s.raw("PUT", "/v1/stream/twice", "", twice, ""); got != 400 {
			t.Errorf("%q: %d %s", twice, got, body)
		}
	}
}

// Messages of a JSON stream are JSON that all can read.
func TestMessagesAreExact(t *testing.T) {
	s, _ := newWatched(t)
	if a := s.do("PUT", "/v1/stream/s", "", ""); a.status != 201 {
		t.Fatal(a)
	}
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for _, body := range []string{deep, "[1," + deep + "]", "\"\xff\"", "[{\"\xc3\":1}]", `{"a":`} {
		if a := s.do("POST", "/v1/stream/s", "", body); a.status != 400 {
			t.Errorf("%.40q: %d %s", body, a.status, a.body)
		}
		if a := s.do("PUT", "/v1/stream/other", "", body); a.status != 400 {
			t.Errorf("made with %.40q: %d %s", body, a.status, a.body)
		}
	}
	if a := s.do("GET", "/v1/stream/s?offset=-1", "", ""); a.body != "[]" {
		t.Errorf("%.100s", a.body)
	}
}

// A browser renders no answer as a page, and a cache serves none to the bearer of another token.
func TestAnswersAreNoPages(t *testing.T) {
	s := newServer(t)
	token := writer(t, "t1")
	for _, tt := range []struct {
		method, path, token, body string
		status                    int
	}{
		{"POST", path1, token, posted("a", `{"type":"chat","text":"<script>"}`), 200},
		{"POST", path1, token, posted("a", `{"type":"chat","text":"<b>"}`), 409},
		{"POST", path1, token, `{`, 400},
		{"GET", path1 + "?offset=0", token, "", 200},
		{"GET", path1 + "?offset=now&live=long-poll", token, "", 204},
		{"GET", path1, "", "", 401},
		{"GET", "/api/nothing", token, "", 404},
		{"GET", "/v1/stream/arbe-thread-t1", token, "", 200},
		{"GET", "/healthz", "", "", 200},
	} {
		a := s.do(tt.method, tt.path, tt.token, tt.body)
		kind, vary := a.header.Get("X-Content-Type-Options"), a.header.Get("Vary")
		if a.status != tt.status || kind != "nosniff" || vary != "Authorization" {
			t.Errorf("%s %s: %d %v", tt.method, tt.path, a.status, a.header)
		}
	}
}
