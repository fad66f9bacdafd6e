package server

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// localOnly lets requests pass that programs and pages of this machine make. A server without tokens has nothing else
// that keeps a page of any site from reading, posting and deleting: a page's own name can be made to lead to a loopback
// address (Host), and its browser sends requests to others (Origin, Sec-Fetch-Site).
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r) {
			refuse(
				http.StatusForbidden,
				"not_local",
				"a server without tokens answers only programs and pages of this machine: Host and Origin have to be loopback",
			).write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocal reports whether a request is for a loopback name and comes from no page, or from one of such a name. A
// preflight may come from any page: it changes nothing, and the request after it is refused.
func isLocal(r *http.Request) bool {
	if !loopbackName(r.Host) {
		return false
	}
	if r.Method == http.MethodOptions {
		return true
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		return false
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || !loopbackName(u.Host) { // "null" has no host
			return false
		}
	}
	return true
}

// loopbackName reports whether a host, with or without a port, is a loopback address, localhost or a name below it.
func loopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") { // no resolver gives these away (RFC 6761)
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
