package httpd

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/output"
)

// A panic is logged as an error with its stack, counted, and answered; the next request is served. An answer that is
// broken off on purpose is none.
func TestPanics(t *testing.T) {
	var logged bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError}))
	panics := 0
	access := make(output.Lines, 10)
	srv := served(t, Recovered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/early":
			w.Header().Set("Content-Length", "3")
			panic("early")
		case "/late":
			_, _ = io.WriteString(w, "some")
			panic("late")
		case "/abort":
			panic(http.ErrAbortHandler)
		}
	}), logger, func() { panics++ }), access)
	// Where a kept connection breaks, the client would ask again.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, tt := range []struct {
		path   string
		status int // 0: the connection breaks
		logged string
		panics int
	}{
		{"/early", 500, "panic=early", 1},
		{"/late", 0, "panic=late", 2},
		{"/abort", 0, "", 2},
		{"/fine", 200, "", 2},
	} {
		logged.Reset()
		status, body := 0, []byte(nil)
		resp, err := client.Get(srv.URL + tt.path)
		if err == nil {
			body, err = io.ReadAll(resp.Body)
			status = resp.StatusCode
			if e := resp.Body.Close(); e != nil {
				t.Error(e)
			}
		}
		line := access.Next(t)
		if err == nil && status != tt.status || err != nil && tt.status != 0 {
			t.Errorf("%s: %d %s, %v", tt.path, status, body, err)
		}
		if tt.status == 500 && (!strings.Contains(string(body), `"code":"internal"`) || line["status"] != 500.0) {
			t.Errorf("%s: %s, %v", tt.path, body, line)
		}
		got := logged.String()
		whole := strings.Contains(got, "recover_test.go") && strings.Contains(got, "level=ERROR")
		if (got == "") != (tt.logged == "") || !strings.Contains(got, tt.logged) || tt.logged != "" && !whole {
			t.Errorf("%s: logged %q", tt.path, got)
		}
		if panics != tt.panics {
			t.Errorf("%s: %d panics counted", tt.path, panics)
		}
	}
}
