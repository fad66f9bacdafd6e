package server

import (
	"log/slog"
	"net/http"
	"runtime/debug"
)

// recovered ends a request whose handler panicked, with 500 where no answer has begun and a broken connection else,
// and logs the panic as an error. http.ErrAbortHandler is no panic: handlers break answers off by it.
func recovered(next http.Handler, m *metrics, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, r := watch(w, r)
		defer func() {
			reason := recover()
			if reason == nil {
				return
			}
			if reason == http.ErrAbortHandler {
				panic(reason)
			}
			m.panicked()
			logger.Error(
				"a request panicked",
				"method",
				printable(r.Method, 20),
				"path",
				printable(r.URL.EscapedPath(), 500),
				"panic",
				reason,
				"stack",
				string(debug.Stack()),
			)
			if x.status != 0 {
				panic(http.ErrAbortHandler)
			}
			h := x.Header()
			h.Del("Content-Length")
			h.Del("ETag")
			h.Set("Cache-Control", "no-store")
			refuse(http.StatusInternalServerError, "internal", "the server failed to handle the request").write(x)
		}()
		next.ServeHTTP(x, r)
	})
}
