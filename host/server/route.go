package server

import (
	"net/http"
	"strings"

	"arbe.0sk.ar/runner/host/httpd"
)

// route is the purpose of a request, for the measurements. It names no stream.
type route uint8

const (
	routeOther   route = iota
	routeAppend        // to a thread
	routeRead          // of a thread
	routeEntry         // a read of one entry
	routeMake          // a thread without entries
	routeLive          // a read that waits, of a thread or another stream
	routeToken         // a fresh token
	routeStream        // the Durable Streams protocol
	routeThreads       // the list of threads, and summaries
	routeHouses        // environments and secrets of houses
	routeAdmin         // about the server, as a backup
	routePage          // the page for people
	routeHealth        // health, readiness and measurements
	routes
)

var routeNames = [routes]string{
	"other", "append", "read", "entry", "make", "live", "token", "stream", "threads", "houses", "admin", "page",
	"health",
}

func (r route) String() string { return routeNames[r] }

// routeOf returns the purpose of a request by its form. The stream need not exist.
func routeOf(r *http.Request) route {
	path := r.URL.Path
	switch path {
	case "/healthz", "/readyz", "/metrics":
		return routeHealth
	}
	if isAt(path, threadsPath) {
		if r.Method == http.MethodGet && isLive(r.URL.RawQuery) {
			return routeLive
		}
		return routeThreads
	}
	if isAt(path, environmentsPath) || isAt(path, secretsPath) {
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
	case !thread && !strings.HasPrefix(path, protocolRoot):
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

// methodOf returns a request's method; OTHER for one that no handler serves, since clients can make up any number.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet,
		http.MethodHead,
		http.MethodPost,
		http.MethodPut,
		http.MethodPatch,
		http.MethodDelete,
		http.MethodOptions:
		return r.Method
	default:
		return "OTHER"
	}
}

// refusals are the reasons of refusals in the measurements.
var refusals = []string{
	"auth",
	"conflict",
	"error",
	"full",
	"invalid",
	"not_found",
	"rate",
	"too_large",
	"unavailable",
}

// refusal returns the reason of an answer with this status; "" for a success, and for a client that went away.
func refusal(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "auth"
	case http.StatusNotFound, http.StatusGone:
		return "not_found"
	case http.StatusConflict, http.StatusPreconditionFailed:
		return "conflict"
	case http.StatusRequestEntityTooLarge:
		return "too_large"
	case http.StatusTooManyRequests:
		return "rate"
	case http.StatusServiceUnavailable:
		return "unavailable"
	case http.StatusInsufficientStorage:
		return "full"
	case httpd.StatusGone:
		return ""
	}
	switch {
	case status < 400:
		return ""
	case status < 500:
		return "invalid"
	default:
		return "error"
	}
}
