package server

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

// headerRequest is the header with the request's id, which is in the access log, too.
const headerRequest = "X-Request-Id"

// logged writes a line of JSON for each request when it ends. A writer that blocks holds the requests up. Of the
// client's data a line has only what can't be a secret, without control characters.
func logged(next http.Handler, to io.Writer) http.Handler {
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
		x, r := watch(w, r)
		id := requestID(r)
		x.Header().Set(headerRequest, id)
		whole := false
		defer func() { // also after a panic, which breaks an answer off
			took := time.Since(began)
			attrs := make([]slog.Attr, 0, 16)
			attrs = append(
				attrs,
				slog.String("method", printable(r.Method, 20)),
				slog.String("path", printable(r.URL.EscapedPath(), 500)),
			)
			attrs = append(attrs, asked(r)...)
			attrs = append(
				attrs,
				slog.Int(
					"status",
					x.code(r, whole),
				),
				slog.Int64("bytes_out", x.sent(r)),
				slog.Int64("bytes_in", x.in.Load()),
				slog.Float64("duration_ms", float64(took.Microseconds())/1000),
				slog.String(
					"remote_ip",
					address(r.RemoteAddr),
				),
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

// asked returns the well-formed offset, before, limit and live of a query. Other parts of it may be secrets that were
// put there by mistake.
func asked(r *http.Request) []slog.Attr {
	if r.URL.RawQuery == "" {
		return nil
	}
	q := r.URL.Query()
	var attrs []slog.Attr
	for _, name := range []string{"offset", "before"} {
		if o := q.Get(name); o == "now" || o == "-1" || isOffset(o) {
			attrs = append(attrs, slog.String(name, o))
		}
	}
	if n, ok := parseLimit(q.Get("limit")); ok {
		attrs = append(attrs, slog.Int("limit", n))
	}
	if live := q.Get("live"); live == "long-poll" || live == "sse" {
		attrs = append(attrs, slog.String("live", live))
	}
	return attrs
}

// isOffset reports whether o looks like an offset: digits, in one or two parts.
func isOffset(o string) bool {
	return o != "" && len(o) <= 41 && strings.Count(o, "_") <= 1 && strings.Trim(o, "0123456789_") == ""
}

// requestID returns the id in a request's header, or a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get(headerRequest)
	bad := strings.ContainsFunc(id, func(c rune) bool {
		return (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' &&
			c != '-'
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
