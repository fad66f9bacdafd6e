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
}

// limited refuses requests that come too fast. What asks for the service's health, and the measurements, always gets through, and so does a browser
// that asks whether it may ask: it would not say why it can't.
func (l Limits) limited(next http.Handler) http.Handler {
	if l.Rate <= 0 {
		return next
	}
	p := newPace(l)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if routeOf(r) == routeHealth || r.Method == http.MethodOptions {
			next.ServeHTTP(w, r)
			return
		}
		c := p.caller(r)
		if wait := p.take(c, time.Now()); wait > 0 {
			if strings.HasPrefix(r.URL.Path, protocolRoot) { // a page of another site is to see what this is
				w.Header().Set("Access-Control-Allow-Origin", "*")
				w.Header().Set("Access-Control-Expose-Headers", exposedHeaders)
			}
			w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(wait.Seconds())))))
			say(w, http.StatusTooManyRequests, "rate", "too many requests: come again later")
			return
		}
		x, r := watch(w, r)
		next.ServeHTTP(x, r)
		if x.status == http.StatusUnauthorized && c.named {
			p.blame(c, time.Now())
		}
	})
}

// pace is how fast each caller may go: a bucket for each that fills at the rate, and a request takes one out.
type pace struct {
	rate              rate.Limit
	burst             int
	tokens, addresses maphash.Seed

	mu      sync.Mutex
	buckets map[uint64]*rate.Limiter
}

func newPace(l Limits) *pace {
	burst := l.Burst
	if burst == 0 {
		burst = max(1, int(math.Ceil(min(l.Rate, math.MaxInt32))))
	}
	return &pace{
		rate: rate.Limit(l.Rate), burst: burst, buckets: map[uint64]*rate.Limiter{},
		tokens: maphash.MakeSeed(), addresses: maphash.MakeSeed(),
	}
}

// maxBuckets is how many callers are kept in mind.
const maxBuckets = 10_000

// caller is who asks, as far as can be told before a token is checked. It holds hashes by a secret seed: the token itself is not kept, and nobody can
// make up one that shares another's bucket.
type caller struct {
	token, address uint64
	named          bool // there is a token
}

func (p *pace) caller(r *http.Request) caller {
	c := caller{address: maphash.Comparable(p.addresses, network(r.RemoteAddr))}
	if kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(kind, "Bearer") {
		token = strings.TrimSpace(token)
		c.token, c.named = maphash.String(p.tokens, token), token != ""
	}
	return c
}

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

// take lets a request of c pass, and returns 0, or how long it is to wait. A token that has not been seen is only taken for one while its address is in
// good standing: else every made-up token would bring a full bucket of its own.
func (p *pace) take(c caller, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := c.address
	if c.named {
		if p.buckets[c.token] == nil {
			if b := p.buckets[c.address]; b != nil && b.TokensAt(now) < 1 {
				return p.until(b, now)
			}
		}
		key = c.token
	}
	b := p.bucket(key, now)
	if b.AllowN(now, 1) {
		return 0
	}
	return p.until(b, now)
}

// blame makes c's address pay for a token that was no good, which is forgotten.
func (p *pace) blame(c caller, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.buckets, c.token)
	p.bucket(c.address, now).AllowN(now, 1)
}

// until is when there is one more in the bucket.
func (p *pace) until(b *rate.Limiter, now time.Time) time.Duration {
	return max(1, time.Duration((1-b.TokensAt(now))/float64(p.rate)*float64(time.Second)))
}

// bucket returns the bucket with this key. p.mu is held.
func (p *pace) bucket(key uint64, now time.Time) *rate.Limiter {
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
