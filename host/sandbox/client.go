package sandbox

import (
	"bytes"
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

// client talks to Daytona: to its control plane, and through its proxy to the daemon in a box. All its patience with one request is in this file.
type client struct {
	key  string
	hc   *http.Client
	pace time.Duration // the first wait, between tries and between looks
}

// Bounds of one request.
const (
	tries      = 6
	attempt    = 30 * time.Second // for one try, answer included
	mostAsked  = 30 * time.Second // of what a server asks for with Retry-After
	mostAnswer = 256 << 20
	slower     = 50 // times pace is the longest wait between tries
)

// sdkVersion makes the daemon tell a command's two outputs apart. It is the version whose ways were seen.
const sdkVersion = "0.190.0"

// request is one call. Its secrets are what must not be said again, whatever the server answers.
type request struct {
	doing   string // for errors
	method  string
	url     string
	body    any           // goes as JSON; nil for none
	into    any           // what is answered, from JSON; nil where nobody wants it
	once    bool          // it must not be sent again where it may have been applied
	attempt time.Duration // 0: attempt
	quiet   bool          // keeps no box awake
	secrets []string
}

func newClient(c Config) *client {
	transport := http.DefaultTransport
	if c.Transport != nil {
		transport = c.Transport
	}
	return &client{key: c.Key, pace: c.Pace, hc: &http.Client{
		Transport: transport,
		// A redirect is no answer that Daytona gives; to follow one could take the key elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// do sends a request, again where that may help and can't harm, and reads the answer.
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

// sign adds what every request has.
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
	one.Timeout = q.attempt
	if one.Timeout == 0 {
		one.Timeout = attempt
	}
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
		ErrorHandler: retryablehttp.PassthroughErrorHandler, // the last answer says why better than "giving up"
	}
}

// again reports whether a request may be answered better a moment later. One that must be applied once is sent again only where it was not applied for sure.
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

// backoff doubles the wait with each try and takes a random half off. What the server asks for counts, within reason.
func backoff(first, most time.Duration, attempt int, resp *http.Response) time.Duration {
	wait := min(most, first<<min(attempt, 20))
	wait -= rand.N(wait/2 + 1)
	if resp != nil {
		if s, err := strconv.ParseFloat(resp.Header.Get("Retry-After"), 64); err == nil && s > 0 {
			wait = max(wait, time.Duration(min(s, mostAsked.Seconds())*float64(time.Second)))
		}
	}
	return wait
}

// sleep waits, unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
