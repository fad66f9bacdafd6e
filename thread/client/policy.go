package client

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// policy is the retry policy of one kind of request. All of them are in this file.
type policy struct {
	tries   int           // at most; 0 for as long as the context allows
	attempt time.Duration // timeout of one try, answer included, plus the time of its body at slowest; 0 for none
	wait    time.Duration // before the second try; 0: firstWait
}

var (
	// appendPolicy is for lines. It bridges short failures; the caller repeats the call after longer ones.
	appendPolicy = policy{tries: 6, attempt: time.Minute}
	// beatPolicy is for heartbeats: the next one replaces one that failed.
	beatPolicy = policy{tries: 1, attempt: 15 * time.Second}
	// finishPolicy is for the terminal. A box leaves its processes little time: one dead connection must not take it.
	finishPolicy = policy{tries: 3, attempt: 10 * time.Second}
	// slowFinishPolicy is for a terminal that finishPolicy could not deliver, as to a slow server. It tries until the
	// caller's context ends.
	slowFinishPolicy = policy{tries: 0, attempt: time.Minute}
	// renewPolicy is for a fresh token. The current one may still be valid.
	renewPolicy = policy{tries: 2, attempt: 10 * time.Second}
	// reachPolicy is for Reach. Its waits bridge a restart of the server.
	reachPolicy = policy{tries: 3, attempt: 10 * time.Second, wait: 2 * time.Second}
	// readPolicy is for reads. A long-poll takes as long as the server waits.
	readPolicy = policy{tries: 4, attempt: 0}
	// summaryPolicy is for a thread's summary, and for a page of the list.
	summaryPolicy = policy{tries: 4, attempt: 30 * time.Second}
	// watchPolicy is for one connection of Watch, which repeats it.
	watchPolicy = policy{tries: 1, attempt: 0}
)

// Waits between tries.
const (
	firstWait = 100 * time.Millisecond
	mostWait  = 5 * time.Second
	mostAsked = 30 * time.Second // heeded of a server's Retry-After
	readIdle  = 2 * time.Minute  // without a byte, after which a read fails
	readAway  = 30 * time.Second // of a server that is away in the middle of a read, after which the read fails
)

// slowest is the lowest throughput in bytes a second at which a post does not time out.
const slowest = 16 << 10

// retrying returns hc, nil for the default one, with p's times for a post of so many bytes. It passes every try's
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
		RetryWaitMin: cmp.Or(p.wait, firstWait),
		RetryWaitMax: mostWait,
		Backoff:      backoff,
		CheckRetry: func(ctx context.Context, resp *http.Response, err error) (bool, error) {
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			seen(resp, err)
			return err != nil || again(resp.StatusCode), nil
		},
		ErrorHandler: retryablehttp.PassthroughErrorHandler, // the last answer has the reason, unlike "giving up"
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

// retryAfter returns the wait that the server asks for, in seconds or as a date; 0 for none, or if it makes no sense.
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
