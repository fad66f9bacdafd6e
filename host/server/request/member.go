package request

import (
	"context"
	"errors"
	"net/http"

	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// Answers about threads and houses.
var (
	// ErrNoThread is the answer about a thread that does not exist, and to a member about a thread of a house that is
	// not the member's: ids can't be probed.
	ErrNoThread   = Refuse(http.StatusNotFound, "not_found", "the thread was never written")
	ErrBadThread  = Refuse(http.StatusNotFound, "not_found", "no such thread: want a threadId of A-Z a-z 0-9 _ -")
	ErrWrongHouse = Refuse(http.StatusForbidden, "wrong_house", "the token is for the threads of another house")
	ErrNoHouses   = Refuse(http.StatusNotImplemented, "no_houses", "this server has no houses")
	ErrNoIndex    = Refuse(http.StatusNotImplemented, "no_index", "this server has no list of threads")
)

// Member returns the member whose login token a request has; false for a request with another token, or none.
func (c *Core) Member(r *http.Request) (m member.Member, is bool, err error) {
	signed := Bearer(r.Header.Get("Authorization"))
	if c.Doors == nil || !member.IsLogin(signed) {
		return m, false, nil
	}
	if _, err := c.Verify(signed); err == nil {
		return m, false, nil
	}
	m, err = c.Doors.Member(r.Context(), signed)
	c.LogRows(err)
	return m, true, err
}

// LogRows logs that the rows about houses can't be read. That the database is away or has another schema is logged
// once, by what opens it and what makes rows follow the log, and not again by each request.
func (c *Core) LogRows(err error) {
	switch {
	case !errors.Is(err, member.ErrRows) || errors.Is(err, context.Canceled):
	case rows.IsUnserved(err) && !errors.Is(err, rows.ErrBusy) && !errors.Is(err, rows.ErrTimeout):
		c.Logger.Debug("houses not read", "error", err)
	default:
		c.Logger.Warn("houses not read", "error", err)
	}
}

// MayOpen returns ErrNoThread for a thread that a member may not open.
func (c *Core) MayOpen(ctx context.Context, m member.Member, id string) error {
	if !thread.ValidThread(id) {
		return ErrNoThread
	}
	may, err := c.Doors.MayOpen(ctx, m, id)
	c.LogRows(err)
	if err == nil && !may {
		err = ErrNoThread
	}
	return err
}

// permitHouse refuses a token of a house for what is not the house's. Where the house of its thread can't be read, the
// token is good: the server signed it for this thread, and a run must not end with the database.
func (c *Core) permitHouse(ctx context.Context, g token.Grant) error {
	if c.Doors == nil || g.House == "" || g.Stream == token.SubjectThreads {
		return nil
	}
	if IsThread(g.Stream) {
		house, err := c.Doors.HouseOf(ctx, ThreadOf(g))
		c.LogRows(err)
		if err != nil || house == g.House {
			return nil
		}
	}
	return ErrWrongHouse
}

// OnlyMember returns the member that a request is from. No other token is good.
func (c *Core) OnlyMember(r *http.Request) (member.Member, error) {
	if c.Doors == nil {
		return member.Member{}, ErrNoHouses
	}
	m, is, err := c.Member(r)
	switch {
	case err != nil || is:
		return m, err
	case Bearer(r.Header.Get("Authorization")) == "":
		return m, Refuse(http.StatusUnauthorized, "no_token", "a member's login token is required")
	}
	return m, Refuse(http.StatusUnauthorized, "invalid_token", "want a member's login token")
}

// PermitMember returns the grant of a member for the thread in the path, one of its houses.
func (c *Core) PermitMember(r *http.Request, scope string) (token.Grant, error) {
	m, err := c.OnlyMember(r)
	if err != nil {
		return token.Grant{}, err
	}
	return c.grantOf(r, m, scope)
}

// grantOf returns the grant of a member for the thread in the path.
func (c *Core) grantOf(r *http.Request, m member.Member, scope string) (token.Grant, error) {
	id := r.PathValue("id")
	if err := c.MayOpen(r.Context(), m, id); err != nil {
		return token.Grant{}, err
	}
	g := MemberGrant(m)
	g.Stream, g.Scope, g.Author = thread.StreamName(id), []string{scope}, m.Agent
	return g, nil
}

// PermitWriter returns the grant of a caller that writes to the thread in the path from outside of its runs: a member
// of its house, or a write token of the thread that is for no single run. runs is the answer to a run's token.
func (c *Core) PermitWriter(r *http.Request, runs string) (g token.Grant, isMember bool, err error) {
	m, isMember, err := c.Member(r)
	id := r.PathValue("id")
	switch {
	case err != nil:
		return g, isMember, err
	case isMember:
		g, err = c.grantOf(r, m, token.ScopeWrite)
		return g, true, err
	case !thread.ValidThread(id):
		return g, false, ErrBadThread
	}
	g, err = c.Permit(r.Context(), r.Header.Get("Authorization"), thread.StreamName(id), token.ScopeWrite)
	if err == nil && g.Run != "" {
		err = Refuse(http.StatusForbidden, "wrong_run", "%s", runs)
	}
	return g, false, err
}

// MemberGrant returns the grant of a member as the holder of its requests.
func MemberGrant(m member.Member) token.Grant { return token.Grant{}.By("member " + m.Agent) }

// RefuseClosed refuses a member's chat in a thread that was closed.
func (c *Core) RefuseClosed(ctx context.Context, id string) error {
	closed, err := c.Doors.IsClosed(ctx, id)
	c.LogRows(err)
	if err == nil && closed {
		err = Refuse(http.StatusConflict, "closed", "the thread is closed: open it again to post")
	}
	return err
}
