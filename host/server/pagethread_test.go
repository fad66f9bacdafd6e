package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	web "arbe.0sk.ar/runner/host/page"
	"arbe.0sk.ar/runner/thread"
)

// chats posts chats c0, c1 … to a thread, in appends of 100.
func chats(t *testing.T, s *site, id string, n int, text func(i int) string) {
	t.Helper()
	for from := 0; from < n; from += 100 {
		var some []string
		for i := from; i < min(from+100, n); i++ {
			some = append(some, fmt.Sprintf(
				`{"id":"c%d","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":%s}}`, i, thread.Marshal(text(i))))
		}
		c := call{
			method: "POST", path: "/api/stream/" + thread.StreamName(id), token: writer(t, id),
			body: "[" + strings.Join(some, ",") + "]",
		}
		if got := c.do(t, s.url); got.status != 200 {
			t.Fatalf("got %+v", got)
		}
	}
}

var (
	articleID = regexp.MustCompile(`<article id="i-([^"]+)"`)
	linkTo    = regexp.MustCompile(`<p class="(older|newer|further)"><a href="([^"]+)"`)
	hitLink   = regexp.MustCompile(`<li><a href="([^"]+)"`)
)

// get returns a page of a logged in browser, its items and its links by their class.
func get(
	t *testing.T, s *site, login []*http.Cookie, path string,
) (body string, ids []string, links map[string]string) {
	t.Helper()
	got := visit{method: "GET", path: path, cookies: login}.to(t, s)
	if got.status != 200 {
		t.Fatalf("%s: %+v", path, got)
	}
	for _, m := range articleID.FindAllStringSubmatch(got.body, -1) {
		ids = append(ids, m[1])
	}
	links = map[string]string{}
	for _, m := range linkTo.FindAllStringSubmatch(got.body, -1) {
		links[m[1]] = strings.ReplaceAll(m[2], "&amp;", "&")
	}
	return got.body, ids, links
}

// A link to any entry gets a page with it, from which the pieces before and behind it lead to all other entries, each
// once.
func TestPageAround(t *testing.T) {
	sites(t, func(t *testing.T, a, b *site) {
		const n = 700
		chats(t, a, "long", n, func(i int) string { return fmt.Sprint("chat ", i) })
		login := namedFor(b, trade(t, a, "/login", linkOf(t, a, "/login/codes", "")).cookies(t))
		var want []string
		for i := range n {
			want = append(want, fmt.Sprint("c", i))
		}
		for _, at := range []int{0, 1, 99, 100, 350, 699} {
			_, ids, links := get(t, b, login, fmt.Sprintf("/t/long?at=c%d", at))
			if !slices.Contains(ids, fmt.Sprint("c", at)) {
				t.Fatalf("at c%d: %v", at, ids)
			}
			if i := slices.Index(ids, fmt.Sprint("c", at)); at < n-1 && i == len(ids)-1 {
				t.Errorf("nothing follows c%d", at)
			}
			for older := links["older"]; older != ""; {
				_, more, next := get(t, b, login, older)
				ids, older = append(more, ids...), next["older"]
			}
			for newer := links["newer"]; newer != ""; {
				_, more, next := get(t, b, login, newer)
				if next["older"] != "" {
					t.Error("a piece that is joined links to what is before it")
				}
				ids, newer = append(ids, more...), next["newer"]
			}
			if !slices.Equal(ids, want) {
				t.Errorf("at c%d: %d entries, want %d", at, len(ids), n)
			}
		}
		if _, ids, _ := get(t, b, login, "/t/long?at=c5/1"); !slices.Contains(ids, "c5") { // an item of it
			t.Errorf("got %v", ids)
		}
		for _, unknown := range []string{"none", "%3Cscript%3E", "/1", "none/1"} { // the page's end stands in its place
			got := visit{method: "GET", path: "/t/long?at=" + unknown, cookies: login}.to(t, b)
			if got.status != 200 {
				t.Errorf("%s: %d", unknown, got.status)
			}
		}
	})
}

// A search returns the newest items with the text first, and continues where it ended; each is returned once, with a
// link to a page that has it.
func TestPageFind(t *testing.T) {
	sites(t, func(t *testing.T, a, b *site) {
		const n = 700
		chats(t, a, "long", n, func(i int) string {
			if i%5 == 0 {
				return fmt.Sprintf("before it Häagen <NEEDLE> %d & after it", i)
			}
			return fmt.Sprint("hay ", i)
		})
		login := namedFor(b, trade(t, a, "/login", linkOf(t, a, "/login/codes", "")).cookies(t))
		var want, found []string
		for i := n - 5; i >= 0; i -= 5 {
			want = append(want, fmt.Sprintf("/t/long?at=c%d&q=%%3cneedle%%3E#i-c%d", i, i))
		}
		requests := 0
		for path := "/t/long/find?q=" + url.QueryEscape("<needle>"); path != ""; requests++ {
			body, _, links := get(t, b, login, path)
			for _, m := range hitLink.FindAllStringSubmatch(body, -1) {
				found = append(found, strings.ReplaceAll(m[1], "&amp;", "&"))
			}
			if strings.Contains(body, "<NEEDLE>") {
				t.Error("a text is markup")
			}
			path = links["further"]
		}
		if len(found) != len(want) || requests < 2 {
			t.Fatalf("%d found in %d requests, want %d", len(found), requests, len(want))
		}
		for i := range want {
			if !strings.EqualFold(found[i], want[i]) {
				t.Errorf("%d: %s, want %s", i, found[i], want[i])
			}
		}
		_, ids, _ := get(t, b, login, strings.Split(found[0], "#")[0])
		if !slices.Contains(ids, "c695") {
			t.Errorf("the link leads to %v", ids)
		}
		if body, _, _ := get(t, b, login, "/t/long/find?q=nowhere"); !strings.Contains(body, "Nothing found.") {
			t.Error(body)
		}
		for _, bad := range []string{"", "q=", "q=%ff", "q=" + strings.Repeat("x", 300), "q=x&before=y"} {
			got := visit{method: "GET", path: "/t/long/find?" + bad, cookies: login}.to(t, b)
			if got.status != 400 {
				t.Errorf("%.20s: %d", bad, got.status)
			}
		}
	})
}

// A logout at one server ends the session at all, for copies of its cookie too, and no other one.
func TestPageLogout(t *testing.T) {
	sites(t, func(t *testing.T, a, b *site) {
		chats(t, a, "one", 1, func(int) string { return "hello" })
		login := trade(t, a, "/login", linkOf(t, a, "/login/codes", "")).cookies(t)
		other := namedFor(b, trade(t, a, "/login", linkOf(t, a, "/login/codes", "")).cookies(t))
		out := visit{method: "POST", path: "/logout", cookies: namedFor(a, login)}
		if got := out.to(t, a); got.status != 303 {
			t.Fatalf("got %+v", got)
		}
		for _, path := range []string{"/", "/t/one", "/t/one/live?after=0", "/live?on=list"} {
			got := visit{method: "GET", path: path, cookies: namedFor(b, login)}.to(t, b)
			if got.status != 401 || got.code != "logged_out" {
				t.Errorf("%s after the logout: %+v", path, got)
			}
		}
		if got := (visit{method: "GET", path: "/", cookies: other}).to(t, b); got.status != 200 {
			t.Errorf("another login: %+v", got)
		}
	})
}

// A thread is shared from its page by a login, and by nobody else.
func TestPageShareHere(t *testing.T) {
	sites(t, func(t *testing.T, a, b *site) {
		chats(t, a, "one", 1, func(int) string { return "hello" })
		login := namedFor(b, trade(t, a, "/login", linkOf(t, a, "/login/codes", "")).cookies(t))
		ask := visit{method: "POST", path: "/t/one/share", body: `{"hours":"1"}`}
		if got := ask.to(t, b); got.status != 401 {
			t.Errorf("without a login: %+v", got)
		}
		ask.cookies = login
		got := ask.to(t, b)
		var link web.Link
		if err := json.Unmarshal([]byte(got.body), &link); err != nil || got.status != 201 {
			t.Fatalf("%v, %+v", err, got)
		}
		share := namedFor(a, trade(t, a, "/share", link.Code).cookies(t))
		ask.cookies = namedFor(b, share)
		if got := ask.to(t, b); got.status != 403 {
			t.Errorf("by a share: %+v", got)
		}
		for _, body := range []string{"", `{"hours":"0"}`, `{"hours":"9999"}`, `{"hours":"x"}`} {
			ask := visit{method: "POST", path: "/t/one/share", body: body, cookies: login}
			if got := ask.to(t, b); got.status != 400 {
				t.Errorf("%s: %+v", body, got)
			}
		}
		revoke := visit{method: "POST", path: "/t/one/revoke", cookies: namedFor(b, share)}
		if got := revoke.to(t, b); got.status != 403 {
			t.Errorf("revoked by a share: %+v", got)
		}
		revoke.cookies = login
		if got := revoke.to(t, b); got.status != 200 || got.body != `{"revoked":1}`+"\n" {
			t.Errorf("got %+v", got)
		}
		if got := (visit{method: "GET", path: "/t/one", cookies: share}).to(t, a); got.status != 401 {
			t.Errorf("a revoked link: %+v", got)
		}
	})
}
