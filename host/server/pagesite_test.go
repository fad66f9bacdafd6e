package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/host/member"
	web "arbe.0sk.ar/runner/host/page"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/internal/test/output"
)

// site is a server with the page.
type site struct {
	url    string
	log    *log.Log
	logged *output.Buffer // its access log and its own
}

// startSite serves the page, as `arbe serve` does.
func startSite(t *testing.T, cluster *jetstream.Config) *site {
	t.Helper()
	return startSiteOf(t, cluster, nil)
}

// startSiteOf is startSite with houses; nil for none.
func startSiteOf(t *testing.T, cluster *jetstream.Config, houses member.Rows) *site {
	t.Helper()
	s := &site{logged: &output.Buffer{}}
	url, stop := serve(t, daemon.Config{
		Addr: "127.0.0.1:0", Data: daemon.Data(t.TempDir()), Secrets: [][]byte{secret}, NATS: cluster, Access: s.logged,
		Rows: houses,
		Parts: func(serving daemon.Serving) daemon.Parts {
			s.log = serving.Streams
			return daemon.Parts{Page: web.Handler(web.Config{
				Log: serving.Streams, Threads: serving.Threads, Secrets: serving.Secrets, Local: true,
				Names: []string{"arbe.example"}, Closing: serving.Closing, Logger: quiet,
				Doors: serving.Doors,
			})}
		},
	})
	if url == "" {
		t.Fatal(stop())
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	s.url = url
	return s
}

// sites calls f with two servers on one log of each engine; with the same server twice on Pebble, which one process
// has.
func sites(t *testing.T, f func(t *testing.T, a, b *site)) {
	t.Run("pebble", func(t *testing.T) {
		t.Parallel()
		s := startSite(t, nil)
		f(t, s, s)
	})
	t.Run("nats", func(t *testing.T) {
		t.Parallel()
		natsd, err := natsserver.Start(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { natsserver.Stop(natsd) })
		cluster := jetstream.Config{URL: natsd.ClientURL(), Shards: 3, Replicas: 1, AllowUnsafe: true, Logger: quiet}
		f(t, startSite(t, &cluster), startSite(t, &cluster))
	})
}

// visit is a request of a browser or a program.
type visit struct {
	method, path, body string
	host               string // "" for the server's own
	header             map[string]string
	cookies            []*http.Cookie
}

// to sends the request.
func (v visit) to(t *testing.T, s *site) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), v.method, s.url+v.path, strings.NewReader(v.body))
	if err != nil {
		t.Fatal(err)
	}
	if v.host != "" {
		req.Host = v.host
	}
	for name, value := range v.header {
		req.Header.Set(name, value)
	}
	for _, c := range v.cookies {
		req.AddCookie(c)
	}
	client := http.Client{
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b []byte
	if resp.StatusCode >= 300 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		if b, err = io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(b)}
	var e struct{ Error struct{ Code string } }
	if json.Unmarshal(b, &e) == nil {
		a.code = e.Error.Code
	}
	return a
}

// cookies returns the cookies of an answer.
func (a answer) cookies(t *testing.T) []*http.Cookie {
	t.Helper()
	all, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
	if err != nil {
		t.Fatalf("%v in %+v", err, a)
	}
	return []*http.Cookie{all}
}

// opener is a header with a token that opens the page.
func opener(t *testing.T) map[string]string {
	return map[string]string{"Authorization": "Bearer " + mint(t, token.Grant{
		Stream: token.SubjectPage, Scope: []string{token.ScopePage},
	})}
}

// linkOf gets a code.
func linkOf(t *testing.T, s *site, path, body string) string {
	t.Helper()
	a := visit{method: "POST", path: path, body: body, header: opener(t)}.to(t, s)
	var link web.Link
	if err := json.Unmarshal([]byte(a.body), &link); err != nil || a.status != http.StatusCreated {
		t.Fatalf("%v, %+v", err, a)
	}
	return link.Code
}

// trade trades a code, and returns the answer.
func trade(t *testing.T, s *site, path, code string) answer {
	t.Helper()
	return visit{method: "POST", path: path, body: fmt.Sprintf(`{"code":%q}`, code)}.to(t, s)
}

// namedFor returns cookies by the names that another server of the same log gives them: a name has the port.
func namedFor(s *site, cookies []*http.Cookie) []*http.Cookie {
	u, err := url.Parse(s.url)
	if err != nil {
		panic(err)
	}
	var all []*http.Cookie
	for _, c := range cookies {
		name := "arbe-" + u.Port()
		if strings.HasSuffix(c.Name, "-share") {
			name += "-share"
		}
		all = append(all, &http.Cookie{Name: name, Value: c.Value})
	}
	return all
}
