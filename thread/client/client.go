// Package client is the HTTP client of a thread server: it appends to a thread (Append, Heartbeat, Finish), reads and
// follows it, lists threads, and renews its token. When it tries again, how often and for how long is in policy.go.
//
// Any call that failed may have been applied. An entry's id makes it harmless to repeat an append, so the client
// repeats it whenever an answer was lost, and its callers may. It renews tokens and signs none. It starts no goroutine
// that outlives the call.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
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

	single  atomic.Bool // the server takes no arrays
	polled  atomic.Bool // the server has no long-poll
	whole   wholeReads  // whether the server refuses to give a thread in pieces
	scanned atomic.Bool // the server gives no single entries
	outage  outage
	renewal renewal
}

// StatusError is an answer of the server that is no success.
type StatusError struct {
	Status  int
	Code    string            // error.code of the answer; "" where it has none
	Message string            // error.message of the answer, or the beginning of its body
	Entries []thread.BadEntry // the refused entries, where the answer lists them

	page bool // the answer is a page of HTML, of a proxy in front of the server
}

func (e *StatusError) Error() string {
	name := http.StatusText(e.Status)
	switch e.Status {
	case http.StatusUnauthorized:
		name = "the token is missing, wrong or expired"
	case http.StatusForbidden:
		name = "the token does not allow this"
	case http.StatusConflict:
		name = "an id is taken by another payload"
	}
	s := fmt.Sprintf("%d %s", e.Status, name)
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Refused reports whether the server refused the token: 401 or 403.
func Refused(err error) bool {
	status := statusOf(err)
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// NotFound reports whether there is no such thread: it was never written (404), or it is Gone.
func NotFound(err error) bool { return statusOf(err) == http.StatusNotFound || Gone(err) }

// Gone reports whether the thread was deleted (410). Its id is not given again: no later request gets another answer.
func Gone(err error) bool { return statusOf(err) == http.StatusGone }

// NoThread reports whether err is a thread server's answer that there is no such thread.
func NoThread(err error) bool { return Gone(err) || NotFound(err) && codeOf(err) == codeNotFound }

// Foreign reports whether err is an answer that no thread server gives: a page of HTML, or a refusal of the route
// without the error of a thread server. Some other server has the address, or a proxy in front of the thread server.
func Foreign(err error) bool {
	var se *StatusError
	if !errors.As(err, &se) {
		return errors.Is(err, errPage)
	}
	switch se.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return se.Code == ""
	}
	return se.page
}

// request sends one request within p's times, and once more with another token where the server refuses this one. The
// caller closes the answer's body.
func (c *Client) request(ctx context.Context, p policy, method, query string, body []byte) (*http.Response, error) {
	token, err := c.current()
	if err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, p, method, query, body, token, c.seen)
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
	if resp, err = c.send(ctx, p, method, query, body, fresh, c.seen); err == nil {
		c.learn(resp, fresh)
	}
	return resp, err
}

// send sends one request within p's times. more is what follows the thread's address; seen gets each try's result.
func (c *Client) send(
	ctx context.Context, p policy, method, more string, body []byte, token string, seen func(*http.Response, error),
) (*http.Response, error) {
	var content any
	if body != nil {
		content = body
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, method, c.Base+"/"+thread.StreamName(c.Thread)+more, content)
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

// statusError reads the answer's error, whatever shape it has.
func statusError(resp *http.Response) error {
	se := &StatusError{Status: resp.StatusCode, page: claimsHTML(resp)}
	if resp.StatusCode/100 == 3 {
		se.Message = redirectMessage(resp)
		return se
	}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // the beginning of a body that broke off serves
	var answer struct {
		Error struct {
			Code    string            `json:"code"`
			Message string            `json:"message"`
			Entries []thread.BadEntry `json:"entries"`
		} `json:"error"`
	}
	if json.Unmarshal(b, &answer) == nil && (answer.Error.Message != "" || answer.Error.Code != "") {
		se.Code, se.Message, se.Entries = answer.Error.Code, answer.Error.Message, answer.Error.Entries
		for i := range se.Entries {
			se.Entries[i].Status = se.Status
		}
		return se
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	se.page = se.page || strings.HasPrefix(line, "<")
	se.Message = strings.ToValidUTF8(line[:min(len(line), 200)], "\uFFFD")
	return se
}

func (c *Client) log() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}

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
			var ue *url.Error
			if errors.As(err, &ue) {
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
