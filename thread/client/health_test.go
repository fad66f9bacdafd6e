package client_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func TestHealth(t *testing.T) {
	since := time.Date(2026, 6, 1, 12, 0, 0, 5e6, time.UTC)
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   client.Health
		fails  bool
	}{
		{"a server", 200, `{"status":"ok","installation":"abc","writableSince":"2026-06-01T12:00:00.005Z"}`, client.Health{Status: "ok", Installation: "abc", WritableSince: since}, false},
		{"an older server, or a proxy", 200, "ok\n", client.Health{Status: "ok"}, false},
		{"a login page", 200, "<!DOCTYPE html><html>log in</html>", client.Health{}, true},
		{"a redirect", 302, "", client.Health{}, true},
		{"an outage", 503, "", client.Health{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/healthz" {
					t.Errorf("asked for %s", r.URL)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body)) // the client may be gone
			}))
			defer srv.Close()
			c := &client.Client{Base: thread.BaseURL(srv.URL), Thread: "t1", Token: client.StaticToken("t")}
			got, err := c.Health(t.Context())
			if !got.WritableSince.Equal(tt.want.WritableSince) || got.Installation != tt.want.Installation ||
				(err != nil) != tt.fails {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}
