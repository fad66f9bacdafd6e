package thread

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// renewal keeps a Client's token good. The Client is given a write token, which its source may replace at any time, and perhaps a renew token. With one
// the write token is exchanged at half its life, and when the server refuses it. What counts is the server's clock, which its answers tell; in between
// the monotonic clock goes on from there, so that a wall clock that is wrong or jumps does no harm.
type renewal struct {
	flight sync.Mutex // held by whoever is getting a token

	mu     sync.Mutex
	given  string // what the source gave last
	token  string // what to show: given, or what it was exchanged for
	issued time.Time
	until  time.Time // both by the server's clock; zero where the token doesn't say
	server time.Time // the server's clock,
	seen   time.Time // when it was told: the monotonic clock counts from here
	failed int       // renewals in a row
	next   time.Time // none before this
	silent bool      // the server is an older one that renews no tokens
	bad    bool      // the token was refused, and that was said
	good   bool      // the server has taken a token
}

// Waits after a renewal that failed.
const (
	firstRenewWait = time.Second
	mostRenewWait  = time.Minute
)

// current is the token to show now.
func (c *Client) current(ctx context.Context) (string, error) {
	given, err := c.Token()
	r := &c.renewal
	r.mu.Lock()
	switch {
	case err != nil && r.token == "":
		r.mu.Unlock()
		return "", err
	case err == nil && given != r.given:
		r.given = given
		r.take(given)
	}
	token, due := r.token, c.Renew != "" && r.halfway() && !r.silent && !time.Now().Before(r.next)
	r.mu.Unlock()
	if due && r.flight.TryLock() { // while one gets a new token, the others go on with the old one
		defer r.flight.Unlock()
		if fresh, err := c.exchange(ctx); err == nil {
			return fresh, nil
		}
	}
	return token, nil
}

// another is a token to show instead of one that the server has refused; false where there is none.
func (c *Client) another(ctx context.Context, refused string) (string, bool) {
	r := &c.renewal
	if token, err := c.current(ctx); err == nil && token != refused {
		return token, true // its source has a new one
	}
	if c.Renew == "" {
		return "", false
	}
	r.flight.Lock()
	defer r.flight.Unlock()
	r.mu.Lock()
	token, wait := r.token, r.silent || time.Now().Before(r.next)
	r.mu.Unlock()
	if token != refused {
		return token, true // somebody has just got it
	}
	if wait {
		return "", false
	}
	fresh, err := c.exchange(ctx)
	return fresh, err == nil
}

// exchange gets a write token for the renew token. The caller holds flight.
func (c *Client) exchange(ctx context.Context) (string, error) {
	r := &c.renewal
	fresh, err := c.askToken(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.failed = 0
		r.take(fresh)
		c.log().Info("the token was renewed", "good_for", r.until.Sub(r.now()).Round(time.Second))
		return fresh, nil
	}
	if ctx.Err() != nil {
		return "", err // the caller's own end
	}
	var se *StatusError
	if r.silent = errors.As(err, &se) && (se.Status == http.StatusNotFound || se.Status == http.StatusMethodNotAllowed); r.silent {
		c.log().Warn("the thread server renews no tokens", "error", err)
		return "", err
	}
	if r.failed++; r.failed == 1 {
		c.log().Warn("the token could not be renewed; trying on", "error", err)
	}
	r.next = time.Now().Add(min(firstRenewWait<<min(r.failed-1, 10), mostRenewWait))
	return "", err
}

func (c *Client) askToken(ctx context.Context) (string, error) {
	resp, err := c.send(ctx, renewPolicy, http.MethodPost, "/token", nil, c.Renew)
	if err != nil {
		return "", err
	}
	defer drain(resp.Body)
	if resp.StatusCode/100 != 2 {
		return "", statusError(resp)
	}
	var answer struct {
		JWT string `json:"jwt"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&answer); err != nil || answer.JWT == "" {
		return "", fmt.Errorf("the answer has no token: %w", err)
	}
	return answer.JWT, nil
}

// heard takes from an answer what it tells of the server's clock and of the token.
func (c *Client) heard(resp *http.Response) {
	r := &c.renewal
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		r.server, r.seen = at, time.Now()
	}
	switch refused := resp.StatusCode == http.StatusUnauthorized; {
	case refused && r.good && !r.bad:
		r.bad = true
		c.log().Warn("the thread server refuses the token; what there is to post waits for another one", "can_renew", c.Renew != "" && !r.silent)
	case resp.StatusCode/100 == 2:
		if r.bad {
			c.log().Info("the thread server takes the token again")
		}
		r.bad, r.good = false, true
	}
}

// take makes token the one to show, and reads from it how long it lives. It is the server that says whether it is good.
func (r *renewal) take(token string) {
	r.token, r.issued, r.until = token, time.Time{}, time.Time{}
	_, rest, _ := strings.Cut(token, ".")
	body, _, _ := strings.Cut(rest, ".")
	b, err := base64.RawURLEncoding.DecodeString(body)
	var claims struct{ Exp, Iat float64 } // seconds, in a JWT
	if err != nil || json.Unmarshal(b, &claims) != nil || claims.Exp <= 0 {
		return // nobody knows how long it lives
	}
	r.until = time.Unix(int64(claims.Exp), 0)
	if claims.Iat > 0 {
		r.issued = time.Unix(int64(claims.Iat), 0)
	}
}

// now is the server's clock; zero before it was told.
func (r *renewal) now() time.Time {
	if r.seen.IsZero() {
		return time.Time{}
	}
	return r.server.Add(time.Since(r.seen))
}

// halfway reports whether the token has lived for half its life.
func (r *renewal) halfway() bool {
	now := r.now()
	if now.IsZero() || r.until.IsZero() {
		return false
	}
	if r.issued.IsZero() {
		r.issued = now // it doesn't say when its life began: now, then
	}
	return now.Sub(r.issued) >= r.until.Sub(r.issued)/2
}
