package request

import (
	"hash/maphash"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// RetryAfter returns a wait as the value of a Retry-After header.
func RetryAfter(wait time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(wait.Seconds()))))
}

// Limiter bounds the rate of each caller: each has a bucket that fills at the rate, and a request takes some out.
type Limiter struct {
	rate               rate.Limit
	burst              int
	holders, addresses maphash.Seed

	mu      sync.Mutex
	buckets map[Caller]*rate.Limiter
}

// NewLimiter returns a Limiter of perSecond, and of burst at once; 0 is perSecond rounded up, and at least 1.
func NewLimiter(perSecond float64, burst int) *Limiter {
	if burst == 0 {
		burst = max(1, int(math.Ceil(min(perSecond, math.MaxInt32))))
	}
	return &Limiter{
		rate: rate.Limit(perSecond), burst: burst, buckets: map[Caller]*rate.Limiter{},
		holders: maphash.MakeSeed(), addresses: maphash.MakeSeed(),
	}
}

// maxBuckets bounds the callers with a bucket.
const maxBuckets = 10_000

// Caller is the holder of a valid token, or an address: a hash with a secret seed, so that a client can't find one that
// shares another's bucket.
type Caller uint64

// Caller returns the caller of a request. A token counts by its grant: another spelling of it, and a fresh token for
// the same thread and run, are the same caller. An invalid token counts for its address.
func (l *Limiter) Caller(r *http.Request, who func(token string) (string, bool)) Caller {
	if token := Bearer(r.Header.Get("Authorization")); token != "" {
		if holder, ok := who(token); ok {
			return l.Holder(holder)
		}
	}
	return Caller(maphash.Comparable(l.addresses, network(r.RemoteAddr)))
}

// Holder returns the caller of a holder.
func (l *Limiter) Holder(holder string) Caller { return Caller(maphash.String(l.holders, holder)) }

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

// Take takes n out of c's bucket and returns 0, or returns how long c has to wait.
func (l *Limiter) Take(c Caller, n int, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucket(c, now)
	if b.AllowN(now, n) {
		return 0
	}
	return max(1, time.Duration((float64(n)-b.TokensAt(now))/float64(l.rate)*float64(time.Second)))
}

// bucket returns the bucket with this key. l.mu is held.
func (l *Limiter) bucket(key Caller, now time.Time) *rate.Limiter {
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
func (l *Limiter) makeRoom(now time.Time) {
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
