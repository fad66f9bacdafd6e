package thread

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// policy says how hard one kind of call tries. All the client's patience is in this file.
type policy struct {
	tries   int           // at most; 0 for as long as the context allows
	attempt time.Duration // for one try, answer included, beside what a large post takes at slowest; 0 for no limit
}

var (
	// appendPolicy is for lines. Whoever appends tries again anyway, so this only bridges what a moment's wait mends.
	appendPolicy = policy{tries: 6, attempt: time.Minute}
	// beatPolicy is for heartbeats: the next one says it better than this one again.
	beatPolicy = policy{tries: 1, attempt: 15 * time.Second}
	// finishPolicy is for the terminal: a connection that is open and dead must not cost much of the time that a box
	// leaves its processes.
	finishPolicy = policy{tries: 3, attempt: 10 * time.Second}
	// slowFinishPolicy is for a terminal that finishPolicy could not deliver, perhaps for the server is slow. Its
	// budget is the caller's context.
	slowFinishPolicy = policy{tries: 0, attempt: time.Minute}
	// renewPolicy is for a fresh token. The one there is may still be good.
	renewPolicy = policy{tries: 2, attempt: 10 * time.Second}
	// readPolicy is for whoever reads a thread. A long-poll takes as long as the server waits.
	readPolicy = policy{tries: 4, attempt: 0}
)

// Waits between tries.
const (
	firstWait = 100 * time.Millisecond
	mostWait  = 5 * time.Second
	mostAsked = 30 * time.Second // of what a server asks for with Retry-After
	readIdle  = 2 * time.Minute  // without a byte, a read is given up
)

// slowest is the throughput in bytes a second that a post may be down to.
const slowest = 16 << 10

// retrying is hc, nil for the default one, with p's patience for a post of so many bytes. It passes every try's
// result to seen, follows no redirects and takes no page of HTML for a success.
func retrying(hc *http.Client, p policy, bytes int, seen func(*http.Response, error)) *retryablehttp.Client {
	tries := p.tries - 1
	if p.tries == 0 {
		tries = 1 << 30
	}
	var one http.Client
	if hc != nil {
		one = *hc
	}
	one.Transport, one.CheckRedirect = pageless{one.Transport}, noRedirect
	if one.Timeout = p.attempt; p.attempt > 0 {
		one.Timeout += time.Duration(bytes) * time.Second / slowest
	}
	return &retryablehttp.Client{
		HTTPClient:   &one,
		RetryMax:     tries,
		RetryWaitMin: firstWait,
		RetryWaitMax: mostWait,
		Backoff:      backoff,
		CheckRetry: func(ctx context.Context, resp *http.Response, err error) (bool, error) {
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			seen(resp, err)
			return err != nil || again(resp.StatusCode), nil
		},
		ErrorHandler: retryablehttp.PassthroughErrorHandler, // the last answer says why better than "giving up"
	}
}

// again reports whether the same request may be answered better a moment later.
func again(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented:
		return false
	}
	return status >= 500
}

// backoff doubles the wait with each try, up to most, and takes a random half off, so that many clients of a server
// that comes back don't come all at once. What the server asks for counts, within reason.
func backoff(first, most time.Duration, attempt int, resp *http.Response) time.Duration {
	wait := most
	if attempt < 30 {
		wait = min(most, first<<attempt)
	}
	wait -= rand.N(wait/2 + 1)
	return max(wait, min(retryAfter(resp), mostAsked))
}

// retryAfter is what the server asks for: seconds or a date; 0 where it asks for nothing or makes no sense.
func retryAfter(resp *http.Response) time.Duration {
	if resp == nil {
		return 0
	}
	asked := resp.Header.Get("Retry-After")
	if s, err := strconv.ParseFloat(asked, 64); err == nil && s > 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(asked); err == nil {
		// The date is by the server's clock, and so is the one it is compared with.
		if now, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			return max(0, at.Sub(now))
		}
	}
	return 0
}
