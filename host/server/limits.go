package server

import (
	"net/http"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/server/streams"
)

// Rate bounds the requests of each caller. Package thread has the limits on the size of an entry and of a post.
type Rate struct {
	PerSecond float64 // for one token, or for one address without a token; 0 is no limit
	Burst     int     // how many may come at once; 0 is Rate rounded up, and at least 1
}

// limited refuses the requests of callers that exceed the rate. who returns the holder of a valid token. Requests for
// health and measurements always pass, and so do preflights, since a browser would not report why one was refused.
func (l Rate) limited(next http.Handler, who func(token string) (holder string, ok bool)) http.Handler {
	if l.PerSecond <= 0 {
		return next
	}
	p := request.NewLimiter(l.PerSecond, l.Burst)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if routeOf(r) == routeHealth || r.Method == http.MethodOptions {
			next.ServeHTTP(w, r)
			return
		}
		if wait := p.Take(p.Caller(r, who), 1, time.Now()); wait > 0 {
			if strings.HasPrefix(r.URL.Path, streams.Root) { // so that a page of another origin can read it
				w.Header().Set("Access-Control-Allow-Origin", "*")
				w.Header().Set("Access-Control-Expose-Headers", streams.Exposed)
			}
			w.Header().Set("Retry-After", request.RetryAfter(wait))
			request.Refuse(http.StatusTooManyRequests, "rate", "too many requests: come again later").Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}
