package server

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/internal/openfiles"
)

// Limits bound what one client can take. Package thread has the limits on the size of an entry and of a post.
type Limits struct {
	Rate        float64 // requests a second for one token, or for one address without a token; 0 is no limit
	Burst       int     // how many may come at once; 0 is what comes in a second, and at least 1
	Connections int     // open at the same time; 0 is 20,000

	StreamBytes int64 // that one stream may hold; 0 is no limit
	TokenBytes  int64 // that the holder of one token may post within an hour; 0 is no limit
}

// otherFiles is how many files the process opens beside connections and the engine's tables: logs, certificates,
// profiles, backups, and the connections of a reconciler.
const otherFiles = 96

// MostConnections returns how many connections this process may have open, where each of them needs so many open files:
// Connections, or fewer where the limit of open files is lower. The rest of the files is for the log.
func (l Limits) MostConnections(each int) int { return l.most(openfiles.Limit(), each) }

// most is MostConnections of a process that may have so many files open.
func (l Limits) most(files, each int) int {
	return min(cmp.Or(l.Connections, 20_000), max(1, (files-pebble.MostFiles(files)-otherFiles)/each))
}

// limited refuses the requests of callers that exceed the rate. who returns the holder of a valid token. Requests for
// health and measurements always pass, and so do preflights, since a browser would not report why one was refused.
func (l Limits) limited(next http.Handler, who func(token string) (holder string, ok bool)) http.Handler {
	if l.Rate <= 0 {
		return next
	}
	p := request.NewLimiter(l.Rate, l.Burst)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if routeOf(r) == routeHealth || r.Method == http.MethodOptions {
			next.ServeHTTP(w, r)
			return
		}
		if wait := p.Take(p.Caller(r, who), 1, time.Now()); wait > 0 {
			if strings.HasPrefix(r.URL.Path, protocolRoot) { // so that a page of another origin can read it
				w.Header().Set("Access-Control-Allow-Origin", "*")
				w.Header().Set("Access-Control-Expose-Headers", exposedHeaders)
			}
			w.Header().Set("Retry-After", request.RetryAfter(wait))
			request.Refuse(http.StatusTooManyRequests, "rate", "too many requests: come again later").Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}
