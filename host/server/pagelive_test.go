package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// liveAnswer reads a live answer of the page.
type liveAnswer struct {
	t    *testing.T
	body *bufio.Reader
}

// listenTo opens a live answer, which ends with the test.
func listenTo(t *testing.T, s *site, cookies []*http.Cookie, path string) *liveAnswer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cookies {
		req.AddCookie(c)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	return &liveAnswer{t, bufio.NewReader(resp.Body)}
}

// until reads the events up to the one with a name, and returns them.
func (e *liveAnswer) until(name string) (all []string) {
	e.t.Helper()
	for event := ""; ; {
		line, err := e.body.ReadString('\n')
		if err != nil {
			e.t.Fatalf("%v after %q, want %q", err, all, name)
		}
		if event += line; line != "\n" {
			continue
		}
		if !strings.HasPrefix(event, ":") {
			all = append(all, event)
		}
		if strings.HasPrefix(event, "event: "+name+"\n") {
			return all
		}
		event = ""
	}
}

// A login's viewers and those of a share get the same events, from each server, and a thread that is deleted is gone
// for all of them. Who comes at an earlier place gets what is behind it.
func TestPageRoom(t *testing.T) {
	sites(t, func(t *testing.T, a, b *site) {
		chats(t, a, "one", 3, func(int) string { return "hello" })
		login := trade(t, a, "/login", linkOf(t, a, "/login/codes", "")).cookies(t)
		body, _, _ := get(t, b, namedFor(b, login), "/t/one")
		_, tail, _ := strings.Cut(body, `data-after="`)
		tail, _, _ = strings.Cut(tail, `"`)
		share := trade(t, a, "/share", linkOf(t, a, "/share/codes", `{"thread":"one"}`)).cookies(t)
		live := "/t/one/live?after=" + tail
		viewers := []*liveAnswer{
			listenTo(t, b, namedFor(b, login), live), listenTo(t, b, namedFor(b, share), live),
			listenTo(t, a, namedFor(a, login), live), listenTo(t, a, namedFor(a, share), live),
		}
		for _, v := range viewers {
			if got := v.until("ready"); len(got) != 2 || !strings.HasPrefix(got[0], "event: head\n") {
				t.Errorf("got %q", got)
			}
		}
		c := call{
			method: "POST", path: "/api/stream/arbe-thread-one", token: writer(t, "one"),
			body: chat("new", "a <new> one"),
		}
		if got := c.do(t, a.url); got.status != 200 {
			t.Fatalf("got %+v", got)
		}
		var got [][]string
		for _, v := range viewers {
			got = append(got, v.until("head"))
		}
		if len(got[0]) != 2 || !strings.Contains(got[0][0], "a &lt;new&gt; one") ||
			!slices.Equal(got[0], got[1]) || !slices.Equal(got[2], got[3]) || got[0][0] != got[2][0] {
			t.Errorf("got %q", got)
		}
		var item struct{ After int }
		_, data, _ := strings.Cut(got[0][0], "\ndata: ")
		if err := json.Unmarshal([]byte(data), &item); err != nil {
			t.Error(err)
		}
		for _, path := range []string{live, fmt.Sprint("/t/one/live?after=", item.After)} {
			late := listenTo(t, b, namedFor(b, share), path)
			if got := late.until("ready"); len(got) != 3 || !strings.Contains(got[0], "a &lt;new&gt; one") {
				t.Errorf("%s: got %q", path, got)
			}
			viewers = append(viewers, late)
		}
		c = call{
			method: "DELETE", path: "/v1/stream/arbe-thread-one",
			token: mint(t, token.Grant{Stream: thread.StreamName("one"), Scope: []string{token.ScopeDelete}}),
		}
		if got := c.do(t, a.url); got.status != 204 {
			t.Fatalf("got %+v", got)
		}
		for _, v := range viewers {
			v.until("gone")
		}
	})
}
