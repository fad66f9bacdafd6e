package httpd

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// lines is a log whose lines a test reads one by one.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// next returns the next line, parsed.
func (l lines) next(t *testing.T) map[string]any {
	t.Helper()
	select {
	case text := <-l:
		var v map[string]any
		if err := json.Unmarshal([]byte(text), &v); err != nil || strings.Count(text, "\n") != 1 ||
			!strings.HasSuffix(text, "\n") {
			t.Fatalf("no line of JSON: %q, %v", text, err)
		}
		return v
	case <-time.After(5 * time.Minute):
		t.Fatal("nothing was logged")
		return nil
	}
}

// nothingAsked adds nothing to the access log.
func nothingAsked(*http.Request) []slog.Attr { return nil }

// served returns a server of h with an access log, that ends with the test.
func served(t *testing.T, h http.Handler, access io.Writer) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(Logged(h, access, nothingAsked))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}
