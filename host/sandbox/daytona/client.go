package daytona

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// client sends requests to Daytona: to its control plane, and through its proxy to the daemon in a box. This file has
// all retries and timeouts of one request.
type client struct {
	key  string
	hc   *http.Client
	pace time.Duration // the first wait between tries and between polls
}

// Bounds of one request.
const (
	tries         = 6
	attempt       = 30 * time.Second // of one try, including the answer
	maxRetryAfter = 30 * time.Second // a longer Retry-After is cut to this
	maxAnswer     = 256 << 20        // bytes
	slower        = 50               // times pace is the longest wait between tries
)

// sdkVersion is sent with each request: the daemon then marks each piece of a command's output as stdout or stderr. The
// behaviour that this package relies on was observed with this version.
const sdkVersion = "0.190.0"

// request is one call.
type request struct {
	doing   string // for errors
	method  string
	url     string
	body    any           // goes as JSON; nil for none
	into    any           // receives the answer, from JSON; nil to ignore it
	once    bool          // never sent again after a try that may have been applied
	attempt time.Duration // timeout of one try; 0: attempt
	quiet   bool          // does not count as use of the box
	secrets []string      // removed from errors
}

func newClient(c Config) *client {
	transport := http.DefaultTransport
	if c.Transport != nil {
		transport = c.Transport
	}
	return &client{key: c.Key, pace: c.Pace, hc: &http.Client{
		Transport: transport,
		// Daytona never redirects. Following a redirect could send the key to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// do sends a request, with retries if they are safe, and reads the answer.
func (c *client) do(ctx context.Context, q request) error {
	var body []byte
	if q.body != nil {
		var err error
		if body, err = json.Marshal(q.body); err != nil {
			return err
		}
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, q.method, q.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("daytona: %s: %w", q.doing, err)
	}
	if q.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	c.sign(req.Request, q)
	resp, err := c.retrying(q).Do(req)
	return c.read(q, resp, err)
}

// sign adds the headers of every request.
func (c *client) sign(req *http.Request, q request) {
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("User-Agent", "arbe")
	req.Header.Set("X-Daytona-SDK-Version", sdkVersion)
	if q.quiet {
		req.Header.Set("X-Daytona-Skip-Last-Activity-Update", "true")
	}
}

func (c *client) retrying(q request) *retryablehttp.Client {
	one := *c.hc
	one.Transport = whole{c.hc.Transport}
	one.Timeout = cmp.Or(q.attempt, attempt)
	return &retryablehttp.Client{
		HTTPClient:   &one,
		RetryMax:     tries - 1,
		RetryWaitMin: c.pace,
		RetryWaitMax: slower * c.pace,
		Backoff:      backoff,
		CheckRetry: func(ctx context.Context, resp *http.Response, err error) (bool, error) {
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			return again(resp, err, q.once), nil
		},
		ErrorHandler: retryablehttp.PassthroughErrorHandler, // the last answer explains more than "giving up"
	}
}

// again reports whether to retry a request. One with once is retried only if it was certainly not applied.
func again(resp *http.Response, err error, once bool) bool {
	var cert *tls.CertificateVerificationError
	var op *net.OpError
	switch {
	case errors.As(err, &cert):
		return false
	case err != nil:
		return !once || errors.As(err, &op) && op.Op == "dial"
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return true
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return !once
	}
	return false
}

// backoff doubles the wait with each try, minus a random part of up to half. Retry-After counts up to maxRetryAfter.
func backoff(first, most time.Duration, attempt int, resp *http.Response) time.Duration {
	wait := min(most, first<<min(attempt, 20))
	wait -= rand.N(wait/2 + 1)
	if resp != nil {
		if s, err := strconv.ParseFloat(resp.Header.Get("Retry-After"), 64); err == nil && s > 0 {
			wait = max(wait, time.Duration(min(s, maxRetryAfter.Seconds())*float64(time.Second)))
		}
	}
	return wait
}
