package httpd

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// HeaderRequest is the header with the request's id, which is in the access log, too.
const HeaderRequest = "X-Request-Id"

// Logged writes a line of JSON to to for each request when it ends; without a writer it returns next. A writer that
// blocks holds the requests up. Of the client's data a line has only what can't be a secret, without control
// characters: of the query it has what asked returns.
func Logged(next http.Handler, to io.Writer, asked func(*http.Request) []slog.Attr) http.Handler {
	if to == nil {
		return next
	}
	logger := slog.New(
		slog.NewJSONHandler(to, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.LevelKey, slog.MessageKey: // the same on each line
				return slog.Attr{}
			case slog.TimeKey:
				return slog.String(slog.TimeKey, a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
			}
			return a
		}}),
	)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		x, r := Watch(w, r)
		id := requestID(r)
		x.Header().Set(HeaderRequest, id)
		whole := false
		defer func() { // also after a panic, which breaks an answer off
			took := time.Since(began)
			attrs := append(make([]slog.Attr, 0, 16),
				slog.String("method", printable(r.Method, 20)),
				slog.String("path", printable(r.URL.EscapedPath(), 500)),
			)
			attrs = append(attrs, asked(r)...)
			attrs = append(attrs,
				slog.Int("status", x.Status(r, whole)),
				slog.Int64("bytes_out", x.Sent(r)),
				slog.Int64("bytes_in", x.Received()),
				slog.Float64("duration_ms", float64(took.Microseconds())/1000),
				slog.String("remote_ip", address(r.RemoteAddr)),
				slog.String("user_agent", printable(r.UserAgent(), 200)),
				slog.String("request_id", id),
			)
			if !whole {
				attrs = append(attrs, slog.Bool("aborted", true))
			}
			logger.LogAttrs(context.WithoutCancel(r.Context()), slog.LevelInfo, "", attrs...)
		}()
		next.ServeHTTP(x, r)
		whole = true
	})
}

// requestID returns the id in a request's header, or a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get(HeaderRequest)
	bad := strings.ContainsFunc(id, func(c rune) bool {
		return (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("._-", c)
	})
	if id == "" || len(id) > 64 || bad {
		return rand.Text()
	}
	return id
}

// printable returns the beginning of s, with a question mark for each character that is not printable ASCII.
func printable(s string, most int) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, s[:min(len(s), most)])
}

// address returns the client's address without the port; "" where it has none.
func address(remote string) string {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	return ap.Addr().Unmap().String()
}
