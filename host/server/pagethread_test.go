package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// streamed reads server-sent events until one has a name, and returns all of them.
func streamed(
	t *testing.T, s *site, path string, cookies []*http.Cookie, until string,
) (events []string, rest func(until string) []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range namedFor(s, cookies) {
		req.AddCookie(c)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() }) // it is not read to its end
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	rest = func(until string) (events []string) {
		t.Helper()
		for lines.Scan() {
			if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
				events[len(events)-1] += " " + data
			} else if name, is := strings.CutPrefix(lines.Text(), "event: "); is {
				events = append(events, name)
			} else if lines.Text() == "" && len(events) > 0 && strings.HasPrefix(events[len(events)-1], until) {
				return events
			}
		}
		t.Fatalf("%v after %.1000q, want %s", lines.Err(), events, until)
		return nil
	}
	return rest(until), rest
}

// The page of a thread follows it at any server: a result replaces its call, a browser that was away gets what it
// lacks, or has to load the page again, and a deleted thread is gone.
func TestPageThread(t *testing.T) {
	sites(t, func(t *testing.T, a, b *site) {
		login := trade(t, a, "/login", linkOf(t, a, "/login/codes", "")).cookies(t)
		post := func(s *site, id, body string) {
			t.Helper()
			c := call{method: "POST", path: "/api/stream/arbe-thread-" + id, token: writer(t, id), body: body}
			if got := c.do(t, s.url); got.status != 200 {
				t.Fatalf("got %+v", got)
			}
		}
		line := func(id, kind, more string) string {
			return fmt.Sprintf(`{"id":%q,"ts":"2026-01-01T00:00:00.000Z","payload":{"type":%q,`+
				`"session":{"id":"s","entry":%[1]q,"index":1},%[3]s}}`, id, kind, more)
		}
		callOf := func(id string) string {
			return line(id, "pi.assistant", `"message":{"role":"assistant","content":[{"type":"toolCall","id":"c-`+id+
				`","name":"bash","arguments":{"command":"ls"}}]}`)
		}
		resultOf := func(id string) string {
			return line(id+"r", "pi.tool_result", `"toolCallId":"c-`+id+`","toolName":"bash","message":{"role":"toolResult",`+
				`"toolCallId":"c-`+id+`","toolName":"bash","content":[{"type":"text","text":"the output of `+id+`"}]}`)
		}
		post(a, "one", callOf("x"))
		events, rest := streamed(t, b, "/t/one/live?after=0", login, "ready")
		if len(events) != 3 || !strings.Contains(events[0], `"id":"x"`) || !strings.Contains(events[0], "running") {
			t.Errorf("got %q", events)
		}
		post(a, "one", resultOf("x"))
		if got := rest("head"); !strings.HasPrefix(got[0], `item {"id":"x"`) ||
			!strings.Contains(got[0], "the output of x") || !strings.Contains(got[0], `"replaces":true`) {
			t.Errorf("got %q", got)
		}

		// A piece whose calls have their results in the next one: they are whole, and the next one's are to go.
		var calls, results []string
		for i := range 150 {
			calls, results = append(calls, callOf(fmt.Sprint("n", i))), append(results, resultOf(fmt.Sprint("n", i)))
		}
		for _, part := range [][]string{calls[:75], calls[75:], results[:75], results[75:]} {
			post(a, "two", "["+strings.Join(part, ",")+"]")
		}
		tail := visit{method: "GET", path: "/t/two", cookies: namedFor(b, login)}.to(t, b)
		_, after, _ := strings.Cut(tail.body, `/t/two/older?before=`)
		before, _, _ := strings.Cut(after, `"`)
		older := visit{method: "GET", path: "/t/two/older?before=" + before, cookies: namedFor(b, login)}.to(t, b)
		if before == "" || older.status != 200 {
			t.Fatalf("no older entries: %.300s, %+v", tail.body, older)
		}
		for i := range 150 {
			id := fmt.Sprint("n", i)
			there := strings.Contains(tail.body, `id="i-`+id+`"`)
			answered := strings.Contains(older.body, "the output of "+id+"\n")
			standalone := strings.Contains(tail.body, `id="i-`+id+`r"`)
			named := strings.Contains(older.body, id+"r ")
			if !there && (!answered || !standalone || !named) || there && standalone {
				t.Errorf("%s: call at the end %v, answered %v, result alone %v, named %v",
					id, there, answered, standalone, named)
			}
		}

		var many []string
		for i := range 1000 {
			many = append(many, chat(fmt.Sprint("m", i), "x"))
		}
		for range 4 {
			for i := range many {
				many[i] = strings.Replace(many[i], `"id":"m`, `"id":"mm`, 1)
			}
			post(a, "far", "["+strings.Join(many, ",")+"]")
		}
		if got, _ := streamed(t, b, "/t/far/live?after=0", login, "far"); len(got) > 3500 {
			t.Errorf("%d events for a browser that is far behind", len(got))
		}
		gone := mint(t, token.Grant{Stream: thread.StreamName("one"), Scope: []string{token.ScopeDelete}})
		remove := call{method: "DELETE", path: "/v1/stream/arbe-thread-one", token: gone}
		if r := remove.do(t, a.url); r.status != 204 {
			t.Fatalf("got %+v", r)
		}
		rest("gone")
		if got := (visit{method: "GET", path: "/t/one", cookies: namedFor(b, login)}).to(t, b); got.status != 404 {
			t.Errorf("a deleted thread: %+v", got)
		}
	})
}
