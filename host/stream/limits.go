package stream

import (
	"hash/maphash"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits keep one client from taking the service away from the others. How large an entry and a post may be, package thread says.
type Limits struct {
	Rate        float64 // requests a second for one token, or for one address without a token; 0 is no limit
	Burst       int     // how many may come at once; 0 is what comes in a second, and at least 1
	Connections int     // open at the same time; 0 is 20,000

	StreamBytes int64 // that one stream may hold; 0 is no limit
	TokenBytes  int64 // that the holder of one token may post within an hour; 0 is no limit
}

// limited refuses requests that come too fast. who returns the holder of a token that is good. Requests for the service's health and for the measurements
// always get through, and so does a browser's preflight: the browser would not report why it was refused.
func (l Limits) limited(next http.Handler, who func(token string) (holder string, ok bool)) http.Handler {
	if l.Rate <= 0 {
		return next
	}
	p := newPace(l.Rate, l.Burst)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if routeOf(r) == routeHealth || r.Method == http.MethodOptions {
			next.ServeHTTP(w, r)
			return
		}
		if wait := p.take(p.caller(r, who), 1, time.Now()); wait > 0 {
			if strings.HasPrefix(r.URL.Path, protocolRoot) { // a page of another site is to see what this is
				w.Header().Set("Access-Control-Allow-Origin", "*")
				w.Header().Set("Access-Control-Expose-Headers", exposedHeaders)
			}
			w.Header().Set("Retry-After", retryAfter(wait))
			say(w, http.StatusTooManyRequests, "rate", "too many requests: come again later")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// retryAfter is a wait as a header has it.
func retryAfter(wait time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(wait.Seconds()))))
}

// pace is how fast each caller may go: a bucket for each that fills at the rate, and a request takes some out.
type pace struct {
	rate               rate.Limit
	burst              int
	holders, addresses maphash.Seed

	mu      sync.Mutex
	buckets map[caller]*rate.Limiter
}

// newPace returns a pace of perSecond, and burst at once; 0 is what comes in a second, and at least 1.
func newPace(perSecond float64, burst int) *pace {
	if burst == 0 {
		burst = max(1, int(math.Ceil(min(perSecond, math.MaxInt32))))
	}
	return &pace{
		rate: rate.Limit(perSecond), burst: burst, buckets: map[caller]*rate.Limiter{},
		holders: maphash.MakeSeed(), addresses: maphash.MakeSeed(),
	}
}

// maxBuckets is how many callers have a bucket.
const maxBuckets = 10_000

// caller is who asks: the holder of a token that is good, or an address. It is a hash by a secret seed, so that nobody can find one that shares another's
// bucket.
type caller uint64

// caller goes by what the token grants, not by its text: the same token written in another way, and a fresh one for the same thread and run, are the same
// caller. A token that is no good counts for its address.
func (p *pace) caller(r *http.Request, who func(token string) (string, bool)) caller {
	if token := bearer(r.Header.Get("Authorization")); token != "" {
		if holder, ok := who(token); ok {
			return p.holder(holder)
		}
	}
	return caller(maphash.Comparable(p.addresses, network(r.RemoteAddr)))
}

func (p *pace) holder(holder string) caller { return caller(maphash.String(p.holders, holder)) }

// network is what is taken for one client without a token: an IPv4 address, or the /64 that a host with IPv6 has all the addresses of.
func network(remote string) netip.Addr {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{} // a socket without addresses: its clients are one
	}
	a := ap.Addr().Unmap().WithZone("")
	if a.Is6() {
		if prefix, err := a.Prefix(64); err == nil {
			return prefix.Addr()
		}
	}
	return a
}

// take lets c have n, and returns 0, or how long it is to wait.
func (p *pace) take(c caller, n int, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.bucket(c, now)
	if b.AllowN(now, n) {
		return 0
	}
	return max(1, time.Duration((float64(n)-b.TokensAt(now))/float64(p.rate)*float64(time.Second)))
}

// bucket returns the bucket with this key. p.mu is held.
func (p *pace) bucket(key caller, now time.Time) *rate.Limiter {
	b := p.buckets[key]
	if b == nil {
		if len(p.buckets) >= maxBuckets {
			p.makeRoom(now)
		}
		b = rate.NewLimiter(p.rate, p.burst)
		p.buckets[key] = b
	}
	return b
}

// makeRoom forgets the callers whose buckets are full again: a new bucket is no different. Where these are too few, others go, too, so that the next
// ones need not look through all of them again.
func (p *pace) makeRoom(now time.Time) {
	for key, b := range p.buckets {
		if b.TokensAt(now) >= float64(p.burst) {
			delete(p.buckets, key)
		}
	}
	for key := range p.buckets {
		if len(p.buckets) <= maxBuckets*9/10 {
			return
		}
		delete(p.buckets, key)
	}
}
