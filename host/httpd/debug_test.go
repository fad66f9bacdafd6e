package httpd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/output"
)

func TestDebugRefuses(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "10.1.2.3:0", "example.org:0", "127.0.0.1", ""} {
		err := ServeProfiles(t.Context(), addr, slog.New(slog.DiscardHandler))
		if !errors.Is(err, ErrDebugAddress) || !strings.Contains(err.Error(), "loopback") ||
			!strings.Contains(err.Error(), `"`+addr+`"`) {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestDebug(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "localhost:0"} {
		ctx, cancel := context.WithCancel(t.Context())
		log := make(output.Lines, 10)
		done := make(chan error, 1)
		go func() { done <- ServeProfiles(ctx, addr, slog.New(slog.NewJSONHandler(log, nil))) }()
		base, _ := log.Next(t)["url"].(string)
		get := func(path string) (int, string) {
			resp, err := http.Get(strings.TrimSuffix(base, "/debug/pprof/") + path)
			if err != nil {
				t.Error(err)
				return 0, ""
			}
			b, err := io.ReadAll(resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil {
				t.Error(err)
			}
			return resp.StatusCode, string(b)
		}
		for path, want := range map[string]string{
			"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "ServeProfiles",
			"/debug/pprof/heap?debug=1": "heap profile", "/debug/pprof/cmdline": "test",
		} {
			if status, body := get(path); status != 200 || !strings.Contains(body, want) {
				t.Errorf("%s: %d %.200s", path, status, body)
			}
		}
		if status, _ := get("/"); status != 404 {
			t.Errorf("/: %d", status)
		}
		// A profile that is being taken does not keep it from ending.
		taken := make(chan struct{})
		go func() {
			defer close(taken)
			get("/debug/pprof/goroutine?seconds=300")
		}()
		for seen := false; !seen; {
			_, body := get("/debug/pprof/goroutine?debug=2")
			seen = strings.Contains(body, "serveDeltaProfile")
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
		<-taken
	}
}
