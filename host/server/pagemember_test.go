package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/access"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// TestPageMember checks the page of a member of houses: it has the threads of the houses, to read and to chat.
func TestPageMember(t *testing.T) {
	t.Parallel()
	r := newRows()
	s := startSiteOf(t, nil, r)
	for _, id := range []string{"t1", "t2", "t4"} {
		c := call{
			method: "POST", path: "/api/stream/arbe-thread-" + id, token: writer(t, id),
			body: signal("r1", "running", thread.TypeStatus, `,"status":"running"`),
		}
		if a := c.do(t, s.url); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	signed := login(t, ann, time.Hour)
	first := trade(t, s, "/login", signed)
	if first.status != 200 || first.body != `{"to":"/"}`+"\n" {
		t.Fatalf("got %+v", first)
	}
	as := first.cookies(t)
	of := func(session access.Session) []*http.Cookie {
		return namedFor(s, []*http.Cookie{{Name: "arbe", Value: access.Seal(secret, session)}})
	}
	share := namedFor(s, trade(t, s, "/share", linkOf(t, s, "/share/codes", `{"thread":"t2"}`)).cookies(t))
	now := time.Now()
	for _, row := range []struct {
		name    string
		v       visit
		cookies []*http.Cookie
		want    int
		code    string
	}{
		{"the list", visit{method: "GET", path: "/"}, as, 200, ""},
		{"the state", visit{method: "GET", path: "/login/state"}, as, 204, ""},
		{"its thread", visit{method: "GET", path: "/t/t1"}, as, 200, ""},
		{"older entries", visit{method: "GET", path: "/t/t1/older?before=1"}, as, 200, ""},
		{"find", visit{method: "GET", path: "/t/t1/find?q=x"}, as, 200, ""},
		{"live entries", visit{method: "GET", path: "/t/t1/live?after=0"}, as, 200, ""},
		{"an entry", visit{method: "GET", path: "/t/t1/raw/r1.running"}, as, 200, ""},
		{"the session", visit{method: "GET", path: "/t/t1/session"}, as, 501, "no_session"},
		{"a chat", visit{method: "POST", path: "/t/t1/chat", body: `{"text":"hello"}`}, as, 201, ""},
		{"cancel", visit{method: "POST", path: "/t/t1/cancel"}, as, 403, "member"},
		{"share", visit{method: "POST", path: "/t/t1/share", body: `{"hours":"1"}`}, as, 403, "member"},
		{"revoke", visit{method: "POST", path: "/t/t1/revoke"}, as, 403, "member"},
		{"make a code", visit{method: "POST", path: "/login/codes"}, as, 401, "no_token"},

		{"another's thread", visit{method: "GET", path: "/t/t2"}, as, 404, "not_found"},
		{"another's older entries", visit{method: "GET", path: "/t/t2/older?before=1"}, as, 404, "not_found"},
		{"another's newer entries", visit{method: "GET", path: "/t/t2/newer?after=0"}, as, 404, "not_found"},
		{"find at another's", visit{method: "GET", path: "/t/t2/find?q=x"}, as, 404, "not_found"},
		{"another's live entries", visit{method: "GET", path: "/t/t2/live?after=0"}, as, 404, "not_found"},
		{"another's entry", visit{method: "GET", path: "/t/t2/raw/r1.running"}, as, 404, "not_found"},
		{"another's image", visit{method: "GET", path: "/t/t2/image/r1.running/0"}, as, 404, "not_found"},
		{"another's session", visit{method: "GET", path: "/t/t2/session"}, as, 404, "not_found"},
		{"a chat at another's", visit{method: "POST", path: "/t/t2/chat", body: `{"text":"x"}`}, as, 404, "not_found"},
		{"cancel another's", visit{method: "POST", path: "/t/t2/cancel"}, as, 404, "not_found"},
		{"a thread of no house", visit{method: "GET", path: "/t/t4"}, as, 404, "not_found"},
		{"no thread", visit{method: "GET", path: "/t/never"}, as, 404, "not_found"},
		{"another's thread, shared", visit{method: "GET", path: "/t/t2"}, append(share, as...), 200, ""},

		{"an agent of no house", visit{method: "GET", path: "/t/t1"}, of(access.NewMember(now, eve, now.Add(time.Hour))), 404, "not_found"},
		{"after the token's expiry", visit{method: "GET", path: "/"}, of(access.NewMember(now, ann, now.Add(-time.Second))), 401, "expired"},
		{"a token as a cookie", visit{method: "GET", path: "/"}, namedFor(s, []*http.Cookie{{Name: "arbe", Value: signed}}), 401, "foreign"},
	} {
		row.v.cookies = row.cookies
		a := row.v.to(t, s)
		if a.status != row.want || a.code != row.code {
			t.Errorf("%s: %d %s %.300s, want %d %s", row.name, a.status, a.code, a.body, row.want, row.code)
		}
	}
	page := visit{method: "GET", path: "/", cookies: as}.to(t, s)
	if !strings.Contains(page.body, "/t/t1") || strings.Contains(page.body, "t2") || strings.Contains(page.body, "t4") {
		t.Errorf("the list: %s", page.body)
	}
	page = visit{method: "GET", path: "/t/t1", cookies: as}.to(t, s)
	for what, want := range map[string]bool{"/t/t1/chat": true, "/cancel": false, "/share": false, "/revoke": false} {
		if strings.Contains(page.body, what) != want {
			t.Errorf("the page of a thread has %s: %v", what, !want)
		}
	}
	entries := call{method: "GET", path: "/api/stream/arbe-thread-t1", token: writer(t, "t1")}.do(t, s.url)
	if !strings.Contains(entries.body, `"authorId":"`+ann+`"`) {
		t.Errorf("the chat has another author: %s", entries.body)
	}
	// A login for all threads sees them still.
	all := namedFor(s, trade(t, s, "/login", linkOf(t, s, "/login/codes", "")).cookies(t))
	if a := (visit{method: "GET", path: "/t/t2", cookies: all}).to(t, s); a.status != 200 {
		t.Errorf("with a login code: %+v", a)
	}
	// No other token logs in, and a house's token makes no codes for all houses.
	for name, bad := range map[string]string{
		"expired": login(t, ann, -time.Second), "a thread's": writer(t, "t1"), "changed": signed + "A", "empty": "",
	} {
		if a := trade(t, s, "/login", bad); a.status != 401 || a.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %+v", name, a)
		}
	}
	house := mint(t, token.Grant{Stream: token.SubjectPage, Scope: []string{token.ScopePage}, House: "h1"})
	a := visit{
		method: "POST", path: "/login/codes", header: map[string]string{"Authorization": "Bearer " + house},
	}.to(t, s)
	if a.status != 403 || a.code != "wrong_house" {
		t.Errorf("a house's page token: %+v", a)
	}
	// A membership that ends, ends at once. Without the rows there is no answer.
	r.change(func() { r.houses[ann] = nil })
	if a := (visit{method: "GET", path: "/t/t1", cookies: as}).to(t, s); a.status != 404 {
		t.Errorf("after the membership: %+v", a)
	}
	r.change(func() { r.away = errors.New("away") })
	for _, path := range []string{"/", "/t/t1", "/login/state"} {
		if a := (visit{method: "GET", path: path, cookies: as}).to(t, s); a.status != 503 || a.code != "houses" {
			t.Errorf("%s without rows: %+v", path, a)
		}
	}
	// A logout ends all copies of the cookie. A server without houses takes no member for a login to all threads.
	r.change(func() { r.away, r.houses[ann] = nil, []string{"h1"} })
	if a := (visit{method: "POST", path: "/logout", cookies: as}).to(t, s); a.status != 303 {
		t.Errorf("logout: %+v", a)
	}
	if a := (visit{method: "GET", path: "/t/t1", cookies: as}).to(t, s); a.status != 401 || a.code != "logged_out" {
		t.Errorf("after the logout: %+v", a)
	}
	plain := startSite(t, nil)
	session := access.Seal(secret, access.NewMember(now, ann, now.Add(time.Hour)))
	cookies := namedFor(plain, []*http.Cookie{{Name: "arbe", Value: session}})
	if a := (visit{method: "GET", path: "/", cookies: cookies}).to(t, plain); a.status != 401 || a.code != "foreign" {
		t.Errorf("without houses: %+v", a)
	}
	if a := trade(t, plain, "/login", signed); a.status != 401 {
		t.Errorf("a login without houses: %+v", a)
	}
	if strings.Contains(s.logged.String(), signed) {
		t.Error("the log has a login token")
	}
}
