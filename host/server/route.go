package server

import (
	"net/http"
	"strings"

	"arbe.0sk.ar/runner/host/server/houses"
	"arbe.0sk.ar/runner/host/server/metrics"
	"arbe.0sk.ar/runner/host/server/streams"
)

// The purposes of requests, for the measurements. They name no stream.
const (
	routeOther   = "other"
	routeAppend  = "append"  // to a thread
	routeRead    = "read"    // of a thread
	routeEntry   = "entry"   // a read of one entry
	routeMake    = "make"    // a thread without entries
	routeLive    = "live"    // a read that waits, of a thread or another stream
	routeToken   = "token"   // a fresh token
	routeStream  = "stream"  // the Durable Streams protocol
	routeThreads = "threads" // the list of threads, and summaries
	routeHouses  = "houses"  // environments and secrets of houses
	routeAdmin   = "admin"   // about the server, as a backup
	routePage    = "page"    // the page for people
	routeHealth  = metrics.Health
)

// routeOf returns the purpose of a request by its form. The stream need not exist.
func routeOf(r *http.Request) string {
	path := r.URL.Path
	switch path {
	case "/healthz", "/readyz", "/metrics":
		return routeHealth
	}
	if isAt(path, houses.ThreadsPath) {
		if r.Method == http.MethodGet && isLive(r.URL.RawQuery) {
			return routeLive
		}
		return routeThreads
	}
	if isAt(path, houses.EnvironmentsPath) || isAt(path, houses.SecretsPath) {
		return routeHouses
	}
	if ofPage(path) {
		if strings.HasSuffix(path, "/live") {
			return routeLive
		}
		return routePage
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	name, thread := strings.CutPrefix(path, "/api/stream/")
	switch {
	case strings.HasPrefix(path, "/v1/admin/"):
		return routeAdmin
	case !thread && !strings.HasPrefix(path, streams.Root):
		return routeOther
	case r.Method == http.MethodGet && isLive(r.URL.RawQuery):
		return routeLive
	case !thread:
		return routeStream
	case reads && !strings.Contains(name, "/"):
		return routeRead
	case reads && strings.Contains(name, "/entries/"):
		return routeEntry
	case r.Method == http.MethodPost && !strings.Contains(name, "/"):
		return routeAppend
	case r.Method == http.MethodPut && !strings.Contains(name, "/"):
		return routeMake
	case r.Method == http.MethodPost && strings.HasSuffix(name, "/token"):
		return routeToken
	default:
		return routeOther
	}
}

// isAt reports whether a path is another one, or below it.
func isAt(path, above string) bool { return path == above || strings.HasPrefix(path, above+"/") }

// ofPage reports whether a path is one of the page for people.
func ofPage(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "", "login", "logout", "share", "live", "t", "assets":
		return true
	}
	return false
}

// isLive reports whether a query asks to wait.
func isLive(query string) bool {
	return strings.HasPrefix(query, "live=") || strings.Contains(query, "&live=")
}
