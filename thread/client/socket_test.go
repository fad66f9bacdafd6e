package client_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// A server on a Unix socket is asked as any other, over connections that are kept.
func TestSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	conns := 0
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.Host+r.URL.RequestURI()+" "+r.Header.Get("User-Agent"))
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "ok", "appended": 1})
	}))
	srv.Listener = ln
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns++
		}
	}
	srv.Start()
	defer srv.Close()
	c := &client.Client{
		Base: thread.BaseURL("unix://" + path), Thread: "t1", Token: client.StaticToken("x"),
		HTTP: client.NewHTTPOf("prog/1"),
	}
	defer c.HTTP.CloseIdleConnections()
	if h, err := c.Health(t.Context()); err != nil || h.Status != "ok" {
		t.Errorf("health %+v, %v", h, err)
	}
	e := thread.Entry{ID: "a:b~c", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(`{"type":"chat"}`)}
	if _, err := c.Append(t.Context(), []thread.Entry{e}); err != nil {
		t.Error(err)
	}
	srv.Close()
	want := "GET localhost/healthz prog/1 POST localhost/api/stream/arbe-thread-t1 prog/1"
	if got := strings.Join(asked, " "); got != want || conns != 1 {
		t.Errorf("asked %s over %d connections, want %s", got, conns, want)
	}
	_, err = c.Health(t.Context())
	if op := new(net.OpError); !errors.As(err, &op) || op.Net != "unix" || op.Op != "dial" {
		t.Errorf("without its server: %v", err)
	}
}

// What is no address of a server is refused, and not repeated.
func TestCheckAddress(t *testing.T) {
	for _, good := range []string{
		"http://host", "https://u:p@host/api/stream", "unix:///run/a.sock", "unix:///run/a.sock:/api/stream",
	} {
		if err := client.CheckAddress(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "host", "ftp://host", "http://", "unix://run/a.sock", "unix:///", "unix:///run/", "unix:/run/a.sock",
		"unix:///a?b", "http://host?x", "unix:///a%20b", "http://host#f",
	} {
		if err := client.CheckAddress(bad); !errors.Is(err, client.ErrAddress) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
