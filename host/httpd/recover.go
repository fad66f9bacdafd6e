package httpd

import (
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
)

// panicAnswer is the answer to a request whose handler panicked, in the form of PROTOCOL.md.
const panicAnswer = `{"error":{"code":"internal","message":"the server failed to handle the request"}}` + "\n"

// Recovered answers 500 for a handler that panics, or breaks the connection where the answer has begun. It logs the
// panic, and calls panicked. It passes http.ErrAbortHandler on, by which handlers break answers off.
func Recovered(next http.Handler, logger *slog.Logger, panicked func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, r := Watch(w, r)
		defer func() {
			reason := recover()
			if reason == nil {
				return
			}
			if reason == http.ErrAbortHandler {
				panic(reason)
			}
			panicked()
			logger.Error("a request panicked", "method", printable(r.Method, 20),
				"path", printable(r.URL.EscapedPath(), 500), "panic", reason, "stack", string(debug.Stack()))
			if x.status != 0 {
				panic(http.ErrAbortHandler)
			}
			h := x.Header()
			h.Del("Content-Length")
			h.Del("ETag")
			h.Set("Cache-Control", "no-store")
			h.Set("Content-Type", "application/json")
			x.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(x, panicAnswer) // the client may be gone
		}()
		next.ServeHTTP(x, r)
	})
}
