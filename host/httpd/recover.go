package server

import (
	"log/slog"
	"net/http"
	"runtime/debug"
)

// recovered answers 500 for a handler that panics, or breaks the connection where the answer has begun, and logs the
// panic. It passes http.ErrAbortHandler on, by which handlers break answers off.
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
