package httpd

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

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
