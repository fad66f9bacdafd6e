package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// A client finds out which servers have summaries, by their answers.
func TestSummary(t *testing.T) {
	for _, tt := range []struct {
		name     string
		status   int
		body     string
		want     string // status of the summary
		notFound bool
		none     bool // ErrNoSummary
	}{
		{"a summary", 200, `{"id":"t1","status":"running","waiting":false,"lines":3,"offset":"1"}`, "running", false, false},
		{"never written", 404, `{"error":{"code":"not_found","message":"x"}}`, "", true, false},
		{"an older server", 404, "404 page not found\n", "", true, true},
		{"another method", 405, "", "", false, true},
		{"no index", 501, `{"error":{"code":"no_index","message":"x"}}`, "", false, true},
		{"something else", 200, `{"ok":true}`, "", false, true},
		{"a bad token", 401, `{"error":{"code":"invalid_token","message":"x"}}`, "", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/below/api/threads/t1" || r.Header.Get("Authorization") != "Bearer x" {
					t.Errorf("got %s, %v", r.URL, r.Header)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer srv.Close()
			c := &client.Client{
				Base:   thread.BaseURL(srv.URL + "/below"),
				Thread: "t1",
				Token:  client.StaticToken("x"),
			}
			v, _, err := c.Summary(t.Context())
			if v.Status != tt.want && tt.want != "" || (err == nil) != (tt.want != "") ||
				client.NotFound(err) != tt.notFound || errors.Is(err, client.ErrNoSummary) != tt.none {
				t.Errorf("got %+v, %v", v, err)
			}
		})
	}
}
