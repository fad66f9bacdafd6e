package request

import (
	"context"
	"net/http"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// Permit returns what an Authorization header allows on a stream, or refuses.
func (c *Core) Permit(ctx context.Context, authorization, name, scope string) (token.Grant, error) {
	signed := Bearer(authorization)
	if signed == "" {
		return token.Grant{}, Refuse(http.StatusUnauthorized, "no_token", "a bearer token is required")
	}
	g, err := c.Verify(signed)
	switch {
	case err != nil:
		return token.Grant{}, Refuse(http.StatusUnauthorized, "invalid_token", "%s", err)
	case !IsThread(g.Stream) && strings.HasPrefix(name, thread.StreamName("")):
		return token.Grant{}, Refuse(http.StatusUnauthorized, "invalid_token", "token has no thread as its subject")
	case g.Stream != name:
		return token.Grant{}, Refuse(http.StatusForbidden, "wrong_thread", "the token is for another thread")
	case !g.Allows(scope):
		return token.Grant{}, Refuse(http.StatusForbidden, "missing_scope", "the token lacks the scope %s", scope)
	}
	return g, c.permitHouse(ctx, g)
}

// Verify returns what a token allows.
func (c *Core) Verify(signed string) (token.Grant, error) {
	g, err := c.Tokens.Verify(signed)
	if err == nil && strings.HasPrefix(g.Stream, thread.StreamName("")) && !IsThread(g.Stream) {
		return token.Grant{}, token.ErrSubject
	}
	return g, err
}

// IsThread reports whether a stream of this name is a thread's.
func IsThread(name string) bool {
	_, is := thread.OfStream(name)
	return is
}

// ThreadOf returns the id of the thread that a grant is for.
func ThreadOf(g token.Grant) string {
	id, _ := thread.OfStream(g.Stream)
	return id
}

// WriterOf returns what a grant binds the writer of its thread to.
func (c *Core) WriterOf(g token.Grant) log.Writer {
	return log.Writer{Run: g.Run, Command: g.Command, Author: g.Author, Harnesses: c.Harnesses}
}

// Bearer returns the token of an Authorization header; "" for none.
func Bearer(authorization string) string {
	kind, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// Holder returns the holder of a valid token.
func (c *Core) Holder(token string) (string, bool) {
	g, err := c.Verify(token)
	return g.Holder(), err == nil
}

// Spend counts the bytes of a post against the quota of the grant's holder.
func (c *Core) Spend(g token.Grant, bytes int) error {
	if c.Posted == nil {
		return nil
	}
	who := g.Holder()
	if who == "" {
		return nil
	}
	if wait := c.Posted.Take(c.Posted.Holder(who), bytes, time.Now()); wait > 0 {
		return Refuse(http.StatusTooManyRequests, "quota",
			"the token's holder has posted as many bytes as it may within an hour").
			With("Retry-After", RetryAfter(wait))
	}
	return nil
}
