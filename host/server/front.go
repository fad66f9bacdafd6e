package server

import (
	"io"
	"log/slog"
	"net/http"
	"strings"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/server/metrics"
)

// Front returns the handler of Handler without its timeouts, which httpd.NewServer adds: behind the access log, the
// measurements and the limit on requests, and recovered from panics.
func (s *Server) Front() http.Handler {
	h := httpd.Recovered(s.handler(), s.Logger, s.Metrics.Panicked)
	return front(h, s.Metrics, s.Rate, s.Access, s.core.Holder)
}

// front adds the access log, the measurements and the limit on requests to a handler, in this order, so that a refused
// request is logged and measured. Each is left out where it is nil or zero.
func front(
	next http.Handler, m *metrics.Set, l Rate, access io.Writer, who func(token string) (holder string, ok bool),
) http.Handler {
	return httpd.Logged(m.Measured(l.limited(next, who), routeOf), access, asked)
}

// asked returns the well-formed offset, before, limit and live of a query, for the access log. Other parts of a query
// may be secrets that were put there by mistake.
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
