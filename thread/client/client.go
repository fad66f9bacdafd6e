// Package client is the HTTP client of a thread server: it appends to a thread (Append, Heartbeat, Finish), reads and
// follows it, lists threads, and renews its token. When it tries again, how often and for how long is in policy.go.
//
// Any call that failed may have been applied. An entry's id makes it harmless to repeat an append, so the client
// repeats it whenever an answer was lost, and its callers may. It renews tokens and signs none. It starts no goroutine
// that outlives the call.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"arbe.0sk.ar/runner/thread"
)

// Client posts to one thread and reads it. It is safe for concurrent use. Every call ends when its context does.
type Client struct {
	Base   string                 // as BaseURL returns it
	Thread string                 // the thread's id
	Token  func() (string, error) // returns a write token; called for each request
	Renew  string                 // a renew token; "" for none
	Log    *slog.Logger           // nil for none. Of a series of failures the first one and the end are logged
	// shared by the process (NewHTTP); nil for http.DefaultTransport. Its Timeout is not used
	HTTP *http.Client

	single  atomic.Bool  // the server takes no arrays
	polled  atomic.Bool  // the server has no long-poll
	whole   atomic.Int32 // reads that the server refused in pieces and answered in whole
	scanned atomic.Bool  // the server gives no single entries
	outage  outage
	renewal renewal
}

// request sends one request within p's times, and once more with another token where the server refuses this one. The
// caller closes the answer's body.
func (c *Client) request(ctx context.Context, p policy, method, query string, body []byte) (*http.Response, error) {
	token, err := c.current()
	if err != nil {
		return nil, err
	}
	at := c.address() + query
	resp, err := c.send(ctx, p, method, at, body, token, c.seen)
	if err != nil {
		return nil, err
	}
	c.learn(resp, token)
	if resp.StatusCode != http.StatusUnauthorized {
		return resp, nil
	}
	fresh, ok := c.another(ctx, token)
	if !ok && ctx.Err() != nil {
		drain(resp.Body)
		return nil, context.Cause(ctx) // a fresh token may be on its way: this was not the last word
	}
	if !ok {
		return resp, nil
	}
	drain(resp.Body)
	if resp, err = c.send(ctx, p, method, at, body, fresh, c.seen); err == nil {
		c.learn(resp, fresh)
	}
	return resp, err
}

// send sends one request within p's times. seen gets each try's result.
func (c *Client) send(
	ctx context.Context, p policy, method, at string, body []byte, token string, seen func(*http.Response, error),
) (*http.Response, error) {
	var content any
	if body != nil {
		content = body
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, method, at, content)
	if err != nil {
		return nil, err
	}
	req.URL.User = nil // it would not be sent beside a token, but shown in errors
	req.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := retrying(c.HTTP, p, len(body), seen).Do(req)
	if err != nil {
		if resp != nil { // the last one before ctx ended: its body is still open
			drain(resp.Body)
		}
		return nil, err
	}
	return resp, nil
}

// drain reads a little of what is left, so that the connection can be used again.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10) // an error only costs the connection
	_ = body.Close()                          // nothing was written through it
}

// address returns the URL of the thread.
func (c *Client) address() string { return c.Base + "/" + thread.StreamName(c.Thread) }

func (c *Client) log() *slog.Logger { return cmp.Or(c.Log, slog.New(slog.DiscardHandler)) }

// Address returns the server's URL for logs and messages, without user and password.
func (c *Client) Address() string {
	u, err := url.Parse(c.Base)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}

// outage is a time in which the server could not be reached or could not answer.
type outage struct {
	mu    sync.Mutex
	since time.Time // zero where there is none
	tries int
	all   int // failed tries of all outages
}

// failures returns the number of failed tries so far.
func (o *outage) failures() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all
}

// Away reports whether the server did not answer the last request: it is out of reach, or can't serve now. A Follow
// retries meanwhile.
func (c *Client) Away() bool {
	c.outage.mu.Lock()
	defer c.outage.mu.Unlock()
	return c.outage.tries > 0
}

// seen logs the first failure of a series and its end.
func (c *Client) seen(resp *http.Response, err error) {
	c.outage.mu.Lock()
	defer c.outage.mu.Unlock()
	o := &c.outage
	if err != nil || again(resp.StatusCode) {
		o.all++
		if o.tries++; o.tries == 1 {
			o.since = time.Now()
			if err == nil {
				err = errors.New(resp.Status)
			}
			if ue, is := errors.AsType[*url.Error](err); is {
				err = ue.Err // the address is in the record already
			}
			c.log().Warn("no answer from the thread server; retrying", "url", c.Address(), "error", err)
		}
		return
	}
	if o.tries > 0 {
		c.log().Info("the thread server answers again", "failed_tries", o.tries,
			"after", time.Since(o.since).Round(time.Millisecond))
		o.tries = 0
	}
}

// StaticToken returns a Client's Token that never changes.
func StaticToken(token string) func() (string, error) {
	return func() (string, error) { return token, nil }
}

// FileToken returns a Client's Token that stands in a file, which somebody renews. While the file is being replaced it
// returns the last token.
func FileToken(path string) func() (string, error) {
	var mu sync.Mutex
	var last string
	return func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		b, err := os.ReadFile(path)
		if token := strings.TrimSpace(string(b)); err == nil && token != "" {
			last = token
		} else if last == "" {
			if err == nil {
				err = errors.New("the file is empty")
			}
			return "", fmt.Errorf("read the token: %w", err)
		}
		return last, nil
	}
}
