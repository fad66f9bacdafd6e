package server

import (
	"cmp"
	"hash/maphash"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"arbe.0sk.ar/runner/host/log/pebble"
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
	p := newLimiter(l.Rate, l.Burst)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if routeOf(r) == routeHealth || r.Method == http.MethodOptions {
			next.ServeHTTP(w, r)
			return
		}
		if wait := p.take(p.caller(r, who), 1, time.Now()); wait > 0 {
			if strings.HasPrefix(r.URL.Path, protocolRoot) { // so that a page of another origin can read it
				w.Header().Set("Access-Control-Allow-Origin", "*")
				w.Header().Set("Access-Control-Expose-Headers", exposedHeaders)
			}
			w.Header().Set("Retry-After", retryAfter(wait))
			refuse(http.StatusTooManyRequests, "rate", "too many requests: come again later").write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// retryAfter returns a wait as the value of a Retry-After header.
func retryAfter(wait time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(wait.Seconds()))))
}

// limiter bounds the rate of each caller: each has a bucket that fills at the rate, and a request takes some out.
type limiter struct {
	rate               rate.Limit
	burst              int
	holders, addresses maphash.Seed

	mu      sync.Mutex
	buckets map[caller]*rate.Limiter
}

// newLimiter returns a limiter of perSecond, and of burst at once; 0 is what comes in a second, and at least 1.
func newLimiter(perSecond float64, burst int) *limiter {
	if burst == 0 {
		burst = max(1, int(math.Ceil(min(perSecond, math.MaxInt32))))
	}
	return &limiter{
		rate: rate.Limit(perSecond), burst: burst, buckets: map[caller]*rate.Limiter{},
		holders: maphash.MakeSeed(), addresses: maphash.MakeSeed(),
	}
}

// maxBuckets bounds the callers with a bucket.
const maxBuckets = 10_000

// caller is the holder of a valid token, or an address: a hash with a secret seed, so that a client can't find one that
// shares another's bucket.
type caller uint64

// caller returns the caller of a request. A token counts by its grant: another spelling of it, and a fresh token for
// the same thread and run, are the same caller. An invalid token counts for its address.
func (l *limiter) caller(r *http.Request, who func(token string) (string, bool)) caller {
	if token := bearer(r.Header.Get("Authorization")); token != "" {
		if holder, ok := who(token); ok {
			return l.holder(holder)
		}
	}
	return caller(maphash.Comparable(l.addresses, network(r.RemoteAddr)))
}

// holder returns the caller of a holder.
func (l *limiter) holder(holder string) caller { return caller(maphash.String(l.holders, holder)) }

// network returns what counts as one client without a token: an IPv4 address, or the /64 of an IPv6 address, all of
// which one host has.
func network(remote string) netip.Addr {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{} // all clients of a socket without addresses are one
	}
	a := ap.Addr().Unmap().WithZone("")
	if a.Is6() {
		if prefix, err := a.Prefix(64); err == nil {
			return prefix.Addr()
		}
	}
	return a
}

// take takes n out of c's bucket and returns 0, or returns how long c has to wait.
func (l *limiter) take(c caller, n int, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucket(c, now)
	if b.AllowN(now, n) {
		return 0
	}
	return max(1, time.Duration((float64(n)-b.TokensAt(now))/float64(l.rate)*float64(time.Second)))
}

// bucket returns the bucket with this key. l.mu is held.
func (l *limiter) bucket(key caller, now time.Time) *rate.Limiter {
	b := l.buckets[key]
	if b == nil {
		if len(l.buckets) >= maxBuckets {
			l.makeRoom(now)
		}
		b = rate.NewLimiter(l.rate, l.burst)
		l.buckets[key] = b
	}
	return b
}

// makeRoom deletes the full buckets, which are as good as new ones, and others until a tenth of the room is free, so
// that the next callers need no scan.
func (l *limiter) makeRoom(now time.Time) {
	for key, b := range l.buckets {
		if b.TokensAt(now) >= float64(l.burst) {
			delete(l.buckets, key)
		}
	}
	for key := range l.buckets {
		if len(l.buckets) <= maxBuckets*9/10 {
			return
		}
		delete(l.buckets, key)
	}
}
