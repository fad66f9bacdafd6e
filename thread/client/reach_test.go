package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"arbe.0sk.ar/runner/thread/client"
)

// scripted is a server that gives one answer after the other; the last one stays.
type scripted struct {
	answers []answered
	asked   []string
}

type answered struct {
	status int
	header http.Header
	body   string
	err    error // no answer
}

func (s *scripted) RoundTrip(req *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, req.Method+" "+req.URL.RequestURI())
	a := s.answers[min(len(s.asked), len(s.answers))-1]
	if a.err != nil {
		return nil, a.err
	}
	if a.header == nil {
		a.header = http.Header{}
	}
	return &http.Response{
		StatusCode: a.status, Header: a.header, Request: req, Body: io.NopCloser(strings.NewReader(a.body)),
	}, nil
}

// A box reaches its thread server if one answers at the thread's address and takes the token, and not if something else
// answers in its place.
func TestReach(t *testing.T) {
	tail := answered{status: 200, header: http.Header{"Stream-Next-Offset": {"7"}}}
	entries := answered{status: 200, body: `{"id":"c1","ts":"","payload":{"type":"chat"}}` + "\n"}
	page := http.Header{"Content-Type": {"text/html"}}
	refusal := func(status int, code string) answered {
		return answered{status: status, body: `{"error":{"code":"` + code + `","message":"its reason"}}`}
	}
	none := answered{err: io.ErrUnexpectedEOF}
	for _, tt := range []struct {
		name    string
		answers []answered
		err     string // "" for none
		tries   int
	}{
		{"a thread", []answered{tail}, "", 1},
		{"a thread of an older server", []answered{entries}, "", 1},
		{"no such thread", []answered{refusal(404, "not_found")}, "", 1},
		{"a restart", []answered{none, none, tail}, "", 3},
		{"a busy server", []answered{refusal(503, "busy")}, "", 3},
		{"a limit", []answered{refusal(429, "rate")}, "", 3},
		{"no connection", []answered{none}, "unexpected EOF", 3},
		{"a refused token", []answered{refusal(401, "unauthorized")}, "401 the token is missing, wrong or exp", 1},
		{"another thread's token", []answered{refusal(403, "forbidden")}, "403 the token does not allow this", 1},
		{"a deleted thread", []answered{refusal(410, "deleted")}, "410 Gone: its reason", 1},
		{"a firewall", []answered{{status: 403, body: "blocked"}}, "no thread server answers like this: another", 1},
		{"a proxy without the route", []answered{{status: 404, body: "404 page not found"}}, "404 Not Found", 1},
		{"a proxy without its server", []answered{refusal(502, "upstream_unreachable")}, "502 Bad Gateway: its", 3},
		{"a login page", []answered{{status: 200, header: page, body: "<html>"}}, "a page of HTML", 3},
		{"a login page without its type", []answered{{status: 200, body: "<html>"}}, "no thread server", 1},
		{"a word", []answered{{status: 200, body: "ok\n"}}, "no thread server answers like this", 1},
		{"nothing", []answered{{status: 200}}, "no thread server answers like this", 1},
		{
			"a redirect",
			[]answered{{status: 302, header: http.Header{"Location": {"https://login.test/"}}}},
			"redirected to https://login.test/", 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{answers: tt.answers}
				c := &client.Client{
					Base: "http://threads.test/api/stream", Thread: "t1", Token: client.StaticToken("secret"),
					HTTP: &http.Client{Transport: s},
				}
				err := c.Reach(t.Context())
				if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				if err != nil && strings.Contains(err.Error(), "secret") {
					t.Errorf("the error has the token: %v", err)
				}
				if len(s.asked) != tt.tries || s.asked[0] != "GET /api/stream/arbe-thread-t1?offset=now" {
					t.Errorf("asked %q, want %d tries", s.asked, tt.tries)
				}
			})
		})
	}
}
