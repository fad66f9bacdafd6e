package server

import (
	"net/http"
	"net/url"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/server/request"
)

// localOnly refuses requests that neither programs nor pages of this machine have made. A server without tokens has no
// other defence against pages of any site: a page's own name can resolve to a loopback address (Host), and its browser
// sends requests to other origins (Origin, Sec-Fetch-Site).
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r) {
			request.Refuse(
				http.StatusForbidden,
				"not_local",
				"a server without tokens answers only programs and pages of this machine: "+
					"Host and Origin have to be loopback",
			).Write(w)
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
