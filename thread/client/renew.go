package client

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

// renewal keeps a Client's token valid. The Client has a write token, which its source may replace at any time, and
// perhaps a renew token. With a renew token the write token is exchanged at half its life, by KeepToken, and when the
// server refuses it. The first token's age follows from the server's clock, read once; the life of exchanged tokens is
// counted from their arrival, by the monotonic clock. So a wrong or jumping clock does no harm.
//
// The calls of a post, from the outside:
//
//	Append, Heartbeat, Finish   entries in arrays, or singly for an older server (append.go)
//	  do                        one post and its answer
//	    request                 with the current token; where the server refuses it, once more with another
//	      current               the source's token, or the one it was exchanged for
//	      send                  tries and waits by the call's policy (policy.go)
//	      learn                 the token's age, and whether the server accepts it
//	      another               a fresh token; none after freshWait
//	KeepToken                   the loop that exchanges tokens
//	  exchange                  one exchange, and when the next one is due
//	    askToken                the renew token for a write token
type renewal struct {
	flight sync.Mutex // held while a token is requested

	mu      sync.Mutex
	given   string        // the source's newest token
	token   string        // the current one: given, or the one it was exchanged for
	issued  time.Time     // by the server's clock; zero if the token has none
	until   time.Time     // by the server's clock; zero if the token has none
	due     time.Time     // when to exchange it; zero if unknown
	aged    bool          // due takes the token's age into account
	next    time.Time     // no exchange before this
	failed  int           // renewals in a row
	inVain  int           // fresh tokens in a row that the server refused
	refused string        // the token that the server refuses; "" for none
	missing bool          // the server is an older one that renews no tokens
	bad     bool          // the token was refused, and that was logged
	good    bool          // the server has accepted a token
	keeper  chan struct{} // wakes KeepToken; nil while it doesn't run
	changed chan struct{} // closed at the next change of token; nil while no call waits for it
}

// Waits between renewals.
const (
	firstRenewWait = time.Second
	mostRenewWait  = time.Minute      // after exchanges that failed, or whose token the server refused
	missingWait    = 10 * time.Minute // for a server that renews no tokens
	freshWait      = 3 * time.Second  // a call whose token was refused waits so long for a fresh one
	defaultLife    = 10 * time.Minute // of a token without a lifetime, once the server has refused one
)

// KeepToken exchanges the write token for a fresh one at half its life, and when the server refuses it, until ctx is
// done; it returns nil then. While it runs, no other call waits for the exchange, but for freshWait where the server
// has refused its token. Without a renew token it only waits for ctx.
func (c *Client) KeepToken(ctx context.Context) error {
	if c.Renew == "" {
		<-ctx.Done()
		return nil
	}
	r := &c.renewal
	wake := make(chan struct{}, 1)
	r.mu.Lock()
	r.keeper = wake
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.keeper = nil
		r.mu.Unlock()
	}()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-wake:
		case <-time.After(r.wait()):
		}
		if ctx.Err() == nil && r.wait() <= 0 {
			r.flight.Lock()
			c.exchange(ctx)
			r.flight.Unlock()
		}
	}
	return nil
}

// wait returns the time until the next exchange.
func (r *renewal) wait() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.due
	switch {
	case r.refused != "" && r.refused == r.token:
		at = r.next
	case at.IsZero():
		return time.Hour // wake ends it earlier
	case at.Before(r.next):
		at = r.next
	}
	return max(0, time.Until(at))
}

// wake makes KeepToken check the token again. The caller holds mu.
func (r *renewal) wake() {
	select {
	case r.keeper <- struct{}{}:
	default: // it doesn't run, or is about to check
	}
}

// current returns the token for a request now.
func (c *Client) current() (string, error) {
	given, err := c.Token()
	r := &c.renewal
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil && r.token == "":
		return "", err
	case err == nil && given != r.given:
		r.given = given
		r.take(given)
	}
	return r.token, nil
}

// another returns a token in place of one that the server has refused; false where there is none.
func (c *Client) another(ctx context.Context, refused string) (string, bool) {
	r := &c.renewal
	if token, err := c.current(); err == nil && token != refused {
		return token, true // the source has a new one
	}
	if c.Renew == "" {
		return "", false
	}
	r.mu.Lock()
	if token := r.token; token != refused {
		r.mu.Unlock()
		return token, true // another call has exchanged it
	}
	r.refused = refused
	kept := r.keeper != nil
	if kept && r.changed == nil {
		r.changed = make(chan struct{})
	}
	changed := r.changed
	r.wake()
	r.mu.Unlock()
	if kept {
		select {
		case <-changed:
		case <-time.After(freshWait):
		case <-ctx.Done():
		}
	} else {
		r.flight.Lock()
		defer r.flight.Unlock()
		if r.wait() <= 0 {
			c.exchange(ctx)
		}
	}
	token, err := c.current()
	return token, err == nil && token != refused
}

// exchange gets a write token for the renew token. A failure is logged, and the token stays. The caller holds flight.
func (c *Client) exchange(ctx context.Context) {
	r := &c.renewal
	fresh, now, err := c.askToken(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch status := statusOf(err); {
	case err == nil:
		r.failed = 0
		r.take(fresh)
		life := r.life(now)
		r.due, r.aged = time.Now().Add(max(life/2, firstRenewWait)), true
		r.next = time.Now().Add(min(firstRenewWait<<min(r.inVain, 10), mostRenewWait))
		r.inVain++
		c.log().Info("the token was renewed", "good_for", life.Round(time.Second))
	case ctx.Err() != nil: // the caller was cancelled
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		if r.next = time.Now().Add(missingWait); !r.missing {
			r.missing = true
			c.log().Warn("the thread server renews no tokens", "error", err)
		}
	default:
		if r.failed++; r.failed == 1 {
			c.log().Warn("the token could not be renewed; retrying", "error", err)
		}
		r.next = time.Now().Add(min(firstRenewWait<<min(r.failed-1, 10), mostRenewWait))
	}
}

// askToken returns a fresh token, and the server's clock where the answer has it.
func (c *Client) askToken(ctx context.Context) (token string, now time.Time, err error) {
	unseen := func(*http.Response, error) {} // the exchange logs its failures
	resp, err := c.send(ctx, renewPolicy, http.MethodPost, c.address()+"/token", nil, c.Renew, unseen)
	if err != nil {
		return "", now, err
	}
	defer drain(resp.Body)
	if resp.StatusCode/100 != 2 {
		return "", now, statusError(resp)
	}
	now = clockOf(resp)
	var answer struct {
		JWT string `json:"jwt"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&answer)
	if err == nil && answer.JWT == "" {
		err = errors.New("it has no jwt")
	}
	if err != nil {
		return "", now, fmt.Errorf("the answer has no token: %w", err)
	}
	return answer.JWT, now, nil
}

// learn takes the server's clock from an answer, and whether the server accepts the token.
func (c *Client) learn(resp *http.Response, token string) {
	r := &c.renewal
	r.mu.Lock()
	defer r.mu.Unlock()
	if now, err := http.ParseTime(resp.Header.Get("Date")); err == nil && !r.aged && token == r.token {
		r.aged = true
		if life := r.life(now); !r.until.IsZero() {
			age := time.Duration(0)
			if !r.issued.IsZero() {
				age = max(0, now.Sub(r.issued))
			}
			r.due = time.Now().Add(max(0, life/2-age))
			r.wake()
		}
	}
	switch refused := resp.StatusCode == http.StatusUnauthorized; {
	case refused && r.good && !r.bad:
		r.bad = true
		c.log().Warn("the thread server refuses the token; what there is to post waits for another one",
			"can_renew", c.Renew != "" && !r.missing)
	case resp.StatusCode/100 == 2:
		if r.bad {
			c.log().Info("the thread server takes the token again")
		}
		r.bad, r.good = false, true
		if token == r.token {
			r.inVain = 0
		}
	}
}

// take makes token the current one, and reads its lifetime. It checks nothing else: the server decides whether the
// token is good. The caller holds mu.
func (r *renewal) take(token string) {
	r.token, r.issued, r.until, r.due, r.aged = token, time.Time{}, time.Time{}, time.Time{}, false
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
	_, rest, _ := strings.Cut(token, ".")
	body, _, _ := strings.Cut(rest, ".")
	b, err := base64.RawURLEncoding.DecodeString(body)
	var claims struct{ Exp, Iat float64 } // seconds, in a JWT
	if err != nil || json.Unmarshal(b, &claims) != nil || claims.Exp <= 0 {
		return // its lifetime is unknown
	}
	r.until = time.Unix(int64(claims.Exp), 0)
	if claims.Iat > 0 {
		r.issued = time.Unix(int64(claims.Iat), 0)
	}
}

// life returns the token's lifetime. Without a time of issue it counts from now, by the server's clock. The caller
// holds mu.
func (r *renewal) life(now time.Time) time.Duration {
	switch {
	case r.until.IsZero():
	case !r.issued.IsZero() && r.until.After(r.issued):
		return r.until.Sub(r.issued)
	case !now.IsZero() && r.until.After(now):
		return max(r.until.Sub(now), 2*mostRenewWait) // because the clock may be wrong
	}
	return defaultLife
}
