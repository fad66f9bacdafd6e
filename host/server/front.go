package server

import (
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/server/metrics"
	"arbe.0sk.ar/runner/host/server/request"
)

// Front returns the handler of Handler without its timeouts, which httpd.NewServer adds: behind the access log, the
// measurements and the limit on requests, and recovered from panics.
func (s *Server) Front() http.Handler {
	h := s.handler()
	h = httpd.Recovered(h, s.Logger, s.core.Metrics.Panicked)
	return front(h, s.core.Metrics, s.Rate, s.Access, s.core.Holder)
}

// front adds the access log, the measurements and the limit on requests to a handler, in this order, so that a refused
// request is logged and measured. The access log and the limit are left out where they are nil or zero.
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

// localOnly refuses requests that neither programs nor pages of this machine have made. A server without tokens has no
// other defence against pages of any site: a page's own name can resolve to a loopback address (Host), and its browser
// sends requests to other origins (Origin, Sec-Fetch-Site).
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r) {
			request.Refuse(http.StatusForbidden, "not_local", "a server without tokens answers only programs and "+
				"pages of this machine: Host and Origin have to be loopback").Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocal reports whether a request has a loopback name as its host, and no origin or one with such a name. A preflight
// may come from any page: it changes nothing, and the request after it is refused.
func isLocal(r *http.Request) bool {
	if !httpd.LoopbackName(r.Host) {
		return false
	}
	if r.Method == http.MethodOptions {
		return true
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		return false
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || !httpd.LoopbackName(u.Host) { // "null" has no host
			return false
		}
	}
	return true
}
