package server_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/access"
	web "arbe.0sk.ar/runner/host/page"
	"arbe.0sk.ar/runner/thread"
)

// Nobody sees or does more than a login or a share allows, whichever server of a log is asked, and each refusal has its
// reason. What was made and revoked at server a holds at server b.
func TestPageAccess(t *testing.T) {
	sites(t, func(t *testing.T, a, b *site) {
		for _, id := range []string{"one", "two"} {
			running := signal("r1", "running", thread.TypeStatus, `,"status":"running"`)
			c := call{method: "POST", path: "/api/stream/arbe-thread-" + id, token: writer(t, id), body: running}
			if got := c.do(t, a.url); got.status != 200 {
				t.Fatalf("got %+v", got)
			}
		}
		now, store := time.Now(), access.Store{Log: a.log}
		seal := func(secret []byte, s access.Session) []*http.Cookie {
			return namedFor(b, []*http.Cookie{{Name: "arbe", Value: access.Seal(secret, s)}})
		}
		check := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		code := linkOf(t, a, "/login/codes", `{"thread":"one"}`)
		first := trade(t, a, "/login", code)
		if first.status != 200 || first.body != `{"to":"/t/one"}`+"\n" {
			t.Fatalf("got %+v", first)
		}
		login := namedFor(b, first.cookies(t))
		shareCode := linkOf(t, a, "/share/codes", `{"thread":"one"}`)
		opened := trade(t, b, "/share", shareCode)
		if opened.status != 200 {
			t.Fatalf("got %+v", opened)
		}
		share := namedFor(b, opened.cookies(t))
		goneCode := linkOf(t, a, "/share/codes", `{"thread":"two","ttlSeconds":3600}`)
		gone := namedFor(b, trade(t, b, "/share", goneCode).cookies(t))
		if got := (visit{method: "GET", path: "/t/two", cookies: gone}).to(t, b); got.status != 200 {
			t.Errorf("a share that is open: %+v", got)
		}
		revoke := visit{method: "DELETE", path: "/share/codes?thread=two", header: opener(t)}
		if got := revoke.to(t, a); got.status != 200 || got.body != `{"revoked":1}`+"\n" {
			t.Fatalf("got %+v", got)
		}
		expired, _, err := store.NewLogin(t.Context(), now.Add(-access.CodeTTL), "")
		check("an expired code", err)
		old, oldCode, err := store.NewShare(t.Context(), now.Add(-2*time.Hour), "one", time.Hour)
		check("an expired share", err)
		oldSession := old.NewSession(now)
		oldSession.Until, oldSession.Most = now.Add(time.Hour), now.Add(time.Hour)
		unused := linkOf(t, a, "/login/codes", "")
		thread1 := map[string]string{"Authorization": "Bearer " + writer(t, "one")}

		codeBody := func(code string) string { return fmt.Sprintf(`{"code":%q}`, code) }
		for _, tt := range []struct {
			name string
			v    visit
			want int
			code string
		}{
			{"login: list", visit{method: "GET", path: "/", cookies: login}, 200, ""},
			{"login: live list", visit{method: "GET", path: "/live?on=list", cookies: login}, 200, ""},
			{"login: thread", visit{method: "GET", path: "/t/two", cookies: login}, 200, ""},
			{"login: state", visit{method: "GET", path: "/login/state", cookies: login}, 204, ""},
			{"login by another name", visit{method: "GET", path: "/login", host: "arbe.example:1"}, 200, ""},
			{"share: its thread", visit{method: "GET", path: "/t/one", cookies: share}, 200, ""},
			{"share: its older entries", visit{method: "GET", path: "/t/one/older?before=1", cookies: share}, 200, ""},
			{"share: its newer entries", visit{method: "GET", path: "/t/one/newer?after=0", cookies: share}, 200, ""},
			{"share: find in it", visit{method: "GET", path: "/t/one/find?q=x", cookies: share}, 200, ""},
			{"share: its live entries", visit{method: "GET", path: "/t/one/live?after=0", cookies: share}, 200, ""},
			{"share: an entry", visit{method: "GET", path: "/t/one/raw/r1.running", cookies: share}, 200, ""},

			{"no cookie: list", visit{method: "GET", path: "/"}, 401, "no_login"},
			{"no cookie: live list", visit{method: "GET", path: "/live?on=list"}, 401, "no_login"},
			{"no cookie: thread", visit{method: "GET", path: "/t/one"}, 401, "no_login"},
			{"no cookie: older entries", visit{method: "GET", path: "/t/one/older?before=1"}, 401, "no_login"},
			{"no cookie: newer entries", visit{method: "GET", path: "/t/one/newer?after=0"}, 401, "no_login"},
			{"no cookie: find", visit{method: "GET", path: "/t/one/find?q=x"}, 401, "no_login"},
			{"no cookie: live entries", visit{method: "GET", path: "/t/one/live?after=0"}, 401, "no_login"},
			{"no cookie: an entry", visit{method: "GET", path: "/t/one/raw/r1.running"}, 401, "no_login"},
			{"no cookie: an image", visit{method: "GET", path: "/t/one/image/r1.running/0"}, 401, "no_login"},
			{"no cookie: the session", visit{method: "GET", path: "/t/one/session"}, 401, "no_login"},
			{"share: the session", visit{method: "GET", path: "/t/one/session", cookies: share}, 401, "no_login"},
			{"no cookie: state", visit{method: "GET", path: "/login/state"}, 401, "no_login"},
			{"no cookie: chat", visit{method: "POST", path: "/t/one/chat", body: `{"text":"x"}`}, 401, "no_login"},
			{"no cookie: cancel", visit{method: "POST", path: "/t/one/cancel"}, 401, "no_login"},
			{"nonsense", visit{method: "GET", path: "/", cookies: namedFor(b, []*http.Cookie{{Value: "x.y"}})}, 401, "foreign"},
			{
				"a thread's token as a cookie", visit{
					method: "GET", path: "/t/one", cookies: namedFor(b, []*http.Cookie{{Value: writer(t, "one")}}),
				}, 401, "foreign",
			},
			{
				"foreign cookie", visit{
					method: "GET", path: "/", cookies: seal(bytes.Repeat([]byte("o"), 32), access.NewSession(now)),
				}, 401, "foreign",
			},
			{
				"a login that has expired", visit{
					method: "GET", path: "/", cookies: seal(secret, access.NewSession(now.Add(-access.IdleTTL))),
				}, 401, "expired",
			},
			{
				"a login that has expired acts", visit{
					method: "POST", path: "/t/one/chat", body: `{"text":"x"}`,
					cookies: seal(secret, access.NewSession(now.Add(-access.IdleTTL))),
				}, 401, "expired",
			},
			{
				"cross-origin POST", visit{
					method: "POST", path: "/t/one/chat", body: `{"text":"x"}`, cookies: login,
					header: map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
				}, 403, "cross_origin",
			},
			{
				"cross-origin POST of a sibling", visit{
					method: "POST", path: "/t/one/cancel", cookies: login,
					header: map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:1"},
				}, 403, "cross_origin",
			},
			{
				"cross-origin POST of an old browser", visit{
					method: "POST", path: "/login", body: codeBody(unused),
					header: map[string]string{"Origin": "http://localhost:1"},
				}, 403, "cross_origin",
			},
			{"rebinding", visit{method: "GET", path: "/", host: "evil.example", cookies: login}, 403, "host"},
			{"rebinding: login", visit{method: "POST", path: "/login", host: "evil.example", body: codeBody(unused)}, 403, "host"},
			{"rebinding: a number", visit{method: "GET", path: "/login", host: "192.0.2.1:8787"}, 403, "host"},
			{"rebinding: assets", visit{method: "GET", path: "/assets/x/y", host: "127.0.0.1.evil.example"}, 403, "host"},
			{"used code", visit{method: "POST", path: "/login", body: codeBody(code)}, 401, "link"},
			{"expired code", visit{method: "POST", path: "/login", body: codeBody(expired)}, 401, "link"},
			{"unknown code", visit{method: "POST", path: "/login", body: codeBody("A" + unused)}, 401, "link"},
			{"no code", visit{method: "POST", path: "/login"}, 401, "link"},
			{"a code in the query", visit{method: "POST", path: "/login?code=" + unused}, 401, "link"},
			{"a share's code logs in", visit{method: "POST", path: "/login", body: codeBody(shareCode)}, 401, "link"},
			{"a login's code opens a share", visit{method: "POST", path: "/share", body: codeBody(unused)}, 401, "link"},
			{"expired share link", visit{method: "POST", path: "/share", body: codeBody(oldCode)}, 401, "link"},
			{"revoked share link", visit{method: "POST", path: "/share", body: codeBody(goneCode)}, 401, "link"},
			{"share: another thread", visit{method: "GET", path: "/t/two", cookies: share}, 403, "wrong_thread"},
			{"share: another's older entries", visit{method: "GET", path: "/t/two/older?before=1", cookies: share}, 403, "wrong_thread"},
			{"share: another's newer entries", visit{method: "GET", path: "/t/two/newer?after=0", cookies: share}, 403, "wrong_thread"},
			{"share: find in another", visit{method: "GET", path: "/t/two/find?q=x", cookies: share}, 403, "wrong_thread"},
			{"share: another's live entries", visit{method: "GET", path: "/t/two/live?after=0", cookies: share}, 403, "wrong_thread"},
			{"share: another's entry", visit{method: "GET", path: "/t/two/raw/r1.running", cookies: share}, 403, "wrong_thread"},
			{"share: another's image", visit{method: "GET", path: "/t/two/image/r1.running/0", cookies: share}, 403, "wrong_thread"},
			{"share: list", visit{method: "GET", path: "/", cookies: share}, 401, "no_login"},
			{"share: live list", visit{method: "GET", path: "/live?on=list", cookies: share}, 401, "no_login"},
			{
				"share under the name of a login", visit{
					method: "GET", path: "/", cookies: namedFor(b, []*http.Cookie{{Value: share[0].Value}}),
				}, 401, "foreign",
			},
			{
				"login under the name of a share", visit{
					method: "GET", path: "/t/one", cookies: namedFor(b, []*http.Cookie{{Name: "-share", Value: login[0].Value}}),
				}, 403, "wrong_thread",
			},
			{"share: chat", visit{method: "POST", path: "/t/one/chat", body: `{"text":"x"}`, cookies: share}, 403, "read_only"},
			{"share: cancel", visit{method: "POST", path: "/t/one/cancel", cookies: share}, 403, "read_only"},
			{"revoked share: live entries", visit{method: "GET", path: "/t/two/live?after=0", cookies: gone}, 401, "link"},
			{"revoked share", visit{method: "GET", path: "/t/two", cookies: gone}, 401, "link"},
			{
				"expired share", visit{
					method: "GET", path: "/t/one",
					cookies: namedFor(b, []*http.Cookie{{Name: "-share", Value: access.Seal(secret, oldSession)}}),
				}, 401, "link",
			},
			{"a code without a token", visit{method: "POST", path: "/login/codes", cookies: login}, 401, "no_token"},
			{"a code with a thread's token", visit{method: "POST", path: "/login/codes", header: thread1}, 403, "missing_scope"},
			{"a share without a token", visit{method: "POST", path: "/share/codes", body: `{"thread":"one"}`}, 401, "no_token"},
			{"a share with its thread's token", visit{method: "POST", path: "/share/codes", body: `{"thread":"one"}`, header: thread1}, 403, "missing_scope"},
			{"a share of no thread", visit{method: "POST", path: "/share/codes", body: `{"thread":"none"}`, header: opener(t)}, 404, "not_found"},
			{"links listed by a reader", visit{method: "GET", path: "/share/codes?thread=one", cookies: login}, 401, "no_token"},
			{"links revoked by a reader", visit{method: "DELETE", path: "/share/codes?thread=one", cookies: share}, 401, "no_token"},
			{"a session as a token", visit{
				method: "GET", path: "/api/threads",
				header: map[string]string{"Authorization": "Bearer " + login[0].Value},
			}, 401, "invalid_token"},
			{"a session at the API", visit{method: "GET", path: "/api/threads", cookies: login}, 401, "no_token"},
			{"the page's token at the API", visit{method: "GET", path: "/api/threads", header: opener(t)}, 403, "wrong_thread"},
			{"the codes' stream", visit{method: "GET", path: "/v1/stream/%01note%2Faccess", header: opener(t)}, 400, "path"},
		} {
			if got := tt.v.to(t, b); got.status != tt.want || got.code != tt.code {
				t.Errorf("%s: %d %s %.300s, want %d %s", tt.name, got.status, got.code, got.body, tt.want, tt.code)
			}
		}

		// A browser gets the reason as a page.
		accept := map[string]string{"Accept": "text/html"}
		for reason, cookies := range map[string][]*http.Cookie{
			"Your login has expired.": seal(secret, access.NewSession(now.Add(-access.IdleTTL))),
			"You are not logged in.":  nil,
		} {
			got := visit{method: "GET", path: "/", header: accept, cookies: cookies}.to(t, b)
			if got.status != 401 || !strings.Contains(got.body, reason) || !strings.Contains(got.body, "arbe open") {
				t.Errorf("want %q, got %+v", reason, got)
			}
		}
		if got := trade(t, b, "/login", unused); got.status != 200 {
			t.Errorf("a code that others tried in vain: %+v", got)
		}
		for _, id := range []string{"one", "two"} {
			v, err := a.log.Stat(t.Context(), thread.StreamName(id))
			check("read", err)
			records, err := a.log.Read(t.Context(), v, 0, v.Tail(), 1<<20)
			if err != nil || len(records) != 1 {
				t.Errorf("thread %s has %d entries, %v", id, len(records), err)
			}
		}
		check("list", a.log.Threads(t.Context(), func(id string, _ uint64) error {
			if id != "one" && id != "two" {
				t.Errorf("listed %q", id)
			}
			return nil
		}))
		for _, s := range []*site{a, b} {
			for _, secret := range []string{code, shareCode, unused, login[0].Value, share[0].Value} {
				if strings.Contains(s.logged.String(), secret) {
					t.Errorf("the access log has %q", secret)
				}
			}
		}
	})
}

// Of many browsers with one code, at both servers, one is logged in.
func TestPageLoginOnce(t *testing.T) {
	sites(t, func(t *testing.T, a, b *site) {
		code := linkOf(t, b, "/login/codes", "")
		var all sync.WaitGroup
		status := make(chan int, 12)
		for i := range cap(status) {
			all.Go(func() {
				resp, err := http.Post([]string{a.url, b.url}[i%2]+"/login", "application/json",
					strings.NewReader(fmt.Sprintf(`{"code":%q}`, code)))
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close() // it is not read
				status <- resp.StatusCode
			})
		}
		all.Wait()
		close(status)
		got := slices.Sorted(func(yield func(int) bool) {
			for n := range status {
				if !yield(n) {
					return
				}
			}
		})
		if len(got) != cap(status) || got[0] != 200 || got[1] != 401 {
			t.Errorf("got %v", got)
		}
	})
}

// A session's cookie is the browser's alone, is renewed while it is used, and is Secure over TLS.
func TestPageCookie(t *testing.T) {
	s := startSite(t, nil)
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	one := trade(t, s, "/login", linkOf(t, s, "/login/codes", "")).cookies(t)[0]
	if one.Name != "arbe-"+u.Port() || !one.HttpOnly || one.SameSite != http.SameSiteStrictMode || one.Path != "/" ||
		one.Secure || one.Domain != "" || one.MaxAge <= 0 || one.MaxAge > int(access.MostTTL/time.Second) {
		t.Errorf("got %+v", one)
	}
	secure := visit{
		method: "POST", path: "/login", body: fmt.Sprintf(`{"code":%q}`, linkOf(t, s, "/login/codes", "")),
		host: "arbe.example", header: map[string]string{"Origin": "https://arbe.example", "Sec-Fetch-Site": "same-origin"},
	}.to(t, s).cookies(t)[0]
	if secure.Name != "__Host-arbe" || !secure.Secure || secure.Path != "/" || secure.Domain != "" {
		t.Errorf("over TLS: %+v", secure)
	}
	session := access.NewSession(time.Now().Add(-access.IdleTTL * 2 / 3))
	for _, tt := range []struct {
		name, value, host string
		renewed           string // the name; "" for not renewed
	}{
		{one.Name, one.Value, "", ""},
		{one.Name, access.Seal(secret, session), "", one.Name},
		{"__Host-arbe", access.Seal(secret, session), "arbe.example", "__Host-arbe"},
	} {
		got := visit{
			method: "GET", path: "/login/state", host: tt.host, cookies: []*http.Cookie{{Name: tt.name, Value: tt.value}},
		}.to(t, s)
		name, _, _ := strings.Cut(got.header.Get("Set-Cookie"), "=")
		if got.status != 204 || name != tt.renewed {
			t.Errorf("%s: renewed as %q, want %q: %+v", tt.name, name, tt.renewed, got)
		}
	}
	out := visit{method: "POST", path: "/logout", cookies: []*http.Cookie{one}}.to(t, s)
	if out.status != http.StatusSeeOther || !strings.Contains(strings.Join(out.header["Set-Cookie"], "\n"),
		one.Name+"=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict") {
		t.Errorf("got %+v", out)
	}
}

// Every answer of the page has the headers that keep a browser from loading, running and showing others' content.
func TestPageHeaders(t *testing.T) {
	s := startSite(t, nil)
	login := trade(t, s, "/login", linkOf(t, s, "/login/codes", "")).cookies(t)
	c := call{method: "POST", path: "/api/stream/arbe-thread-one", token: writer(t, "one"), body: chat("a", "x")}
	if got := c.do(t, s.url); got.status != 200 {
		t.Fatalf("got %+v", got)
	}
	list := visit{method: "GET", path: "/", cookies: login}.to(t, s)
	_, rest, _ := strings.Cut(list.body, `src="`)
	script, _, _ := strings.Cut(rest, `"`)
	want := map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
			"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; " +
			"require-trusted-types-for 'script'; trusted-types arbe",
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
	}
	for path, status := range map[string]int{
		"/": 200, "/?part": 200, "/?state=nonsense": 400, "/live?on=list": 200, "/login": 200, "/share": 200,
		"/login/state": 204,
		"/t/one":       200, "/t/none": 404, "/t/not..valid": 404, "/t/one/none": 404, script: 200,
		"/t/one/older?before=1": 200, "/t/one/older?before=-1": 400, "/t/one/live?after=0": 200, "/t/one/raw/a": 200,
		"/t/one/live": 400, "/t/one/raw/none": 404, "/t/one/image/a/0": 404,
		"/assets/x/page.js":       404,
		"/share/codes?thread=one": 401,
	} {
		for _, kind := range []string{"text/html", "*/*"} {
			got := visit{
				method: "GET", path: path, cookies: login, header: map[string]string{"Accept": kind},
			}.to(t, s)
			headers := maps.Clone(want)
			if path == script {
				headers["Cache-Control"] = "public, max-age=31536000, immutable"
			}
			for name, value := range headers {
				if got.header.Get(name) != value {
					t.Errorf("%s: %s: %q", path, name, got.header.Get(name))
				}
			}
			if got.status != status || got.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s: got %d, want %d: %.200s", path, got.status, status, got.body)
			}
			for _, inline := range []string{"<style", " style=", " onclick", "<script>"} {
				if strings.Contains(got.body, inline) && path != script {
					t.Errorf("%s has %s", path, inline)
				}
			}
		}
	}
}

// A server on a public address answers to any name, until it is given names.
func TestPageNames(t *testing.T) {
	for _, tt := range []struct {
		c    web.Config
		host string
		want int
	}{
		{web.Config{}, "any.example", 200},
		{web.Config{Names: []string{"arbe.example"}}, "any.example", 403},
		{web.Config{Names: []string{"arbe.example"}}, "ARBE.example.:443", 200},
		{web.Config{Names: []string{"arbe.example"}}, "localhost:1", 200},
		{web.Config{Local: true}, "any.example", 403},
		{web.Config{Local: true}, "[::1]:1", 200},
		{web.Config{Local: true}, "", 403},
	} {
		tt.c.Logger = quiet
		r := httptest.NewRequest("GET", "/login", nil)
		r.Host = tt.host
		w := httptest.NewRecorder()
		web.Handler(tt.c).ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%+v for %q: %d, want %d", tt.c, tt.host, w.Code, tt.want)
		}
	}
}

// An appended entry reaches the live list of the other server. It ends with the server.
func TestPageLive(t *testing.T) {
	sites(t, func(t *testing.T, a, b *site) {
		login := trade(t, a, "/login", linkOf(t, a, "/login/codes", "")).cookies(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", b.url+"/live?on=list%3Fq%3Dneedle", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range namedFor(b, login) {
			req.AddCookie(c)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		read := func(until string) string {
			t.Helper()
			var all []byte
			buf := make([]byte, 4096)
			for !bytes.Contains(all, []byte(until)) {
				n, err := resp.Body.Read(buf)
				if all = append(all, buf[:n]...); err != nil {
					t.Fatalf("%v after %q, want %q", err, all, until)
				}
			}
			return string(all)
		}
		read("event: ready")
		for _, text := range []string{"hay", "a needle"} {
			c := call{
				method: "POST", path: "/api/stream/arbe-thread-" + text[:1], token: writer(t, text[:1]),
				body: chat("x", text),
			}
			if got := c.do(t, a.url); got.status != 200 {
				t.Fatalf("got %+v", got)
			}
		}
		if got := read("a needle"); strings.Contains(got, "hay<") {
			t.Errorf("got %s", got)
		}
	})
}
