package page

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/access"
)

var (
	errNoLogin  = refuse(http.StatusUnauthorized, "no_login", "You are not logged in.")
	errReadOnly = refuse(http.StatusForbidden, "read_only", "A shared thread can be read only.")
	errMember   = refuse(http.StatusForbidden, "member", "A member of a house reads and chats here, and nothing else.")
	errNotYours = refuse(http.StatusForbidden, "wrong_thread", "This link shares another thread.")
)

// viewer returns the session of a request that may read a thread; "" for all threads. It renews the browser's cookie
// while the session is used.
func (p *page) viewer(w http.ResponseWriter, r *http.Request, id string) (access.Session, error) {
	s, err := p.session(r, "")
	if err == nil && s.Share != "" {
		err = access.ErrForeign // a share's session under the name of a login's
	}
	if err == nil {
		err = p.check(r.Context(), s, id)
	}
	if err != nil && id != "" {
		if shared, sharedErr := p.shared(r, id); sharedErr == nil || errors.Is(err, errNoLogin) {
			s, err = shared, sharedErr
		}
	}
	if err != nil {
		return access.Session{}, err
	}
	if renewed, is := s.Renewed(now()); is {
		s = renewed
		p.setCookie(w, r, s)
	}
	return s, nil
}

// check returns an error for the session of a login that has ended, or that may not read a thread; "" for the list.
func (p *page) check(ctx context.Context, s access.Session, id string) error {
	if err := p.store.Check(ctx, now(), s); err != nil || s.Agent == "" {
		return err
	}
	if p.Doors == nil {
		return access.ErrForeign
	}
	m, err := p.Doors.Agent(ctx, s.Agent)
	if err != nil || id == "" {
		return err
	}
	may, err := p.Doors.MayOpen(ctx, m, id)
	if err == nil && !may {
		err = errNoThread
	}
	return err
}

// only returns which threads a session may list, as index.Query has it; nil for all.
func (p *page) only(s access.Session) func(context.Context, []string) (map[string]bool, error) {
	if s.Agent == "" {
		return nil
	}
	return p.Doors.Filter(s.Agent)
}

// shared returns the session of a request that may read a thread by a share.
func (p *page) shared(r *http.Request, id string) (access.Session, error) {
	s, err := p.session(r, id)
	switch {
	case err != nil:
		return s, err
	case s.Thread != id || s.Share == "":
		return s, errNotYours
	}
	return s, p.store.Check(r.Context(), now(), s)
}

// speaker returns the session of a request that may post a chat to a thread, and stop what a bot answers.
func (p *page) speaker(w http.ResponseWriter, r *http.Request, id string) (access.Session, error) {
	s, err := p.viewer(w, r, id)
	if err == nil && s.Thread != "" {
		err = errReadOnly
	}
	return s, err
}

// actor returns the session of a request that may act on a thread: cancel its run and share it.
func (p *page) actor(w http.ResponseWriter, r *http.Request, id string) (access.Session, error) {
	s, err := p.speaker(w, r, id)
	if err == nil && s.Agent != "" {
		err = errMember
	}
	return s, err
}

// session returns the session in a request's cookie: of a login, or of a share of a thread.
func (p *page) session(r *http.Request, id string) (access.Session, error) {
	err := error(errNoLogin)
	for _, secure := range []bool{true, false} {
		for _, c := range r.CookiesNamed(cookieName(r, secure, id)) {
			var s access.Session
			if s, err = access.Open(p.Secrets, c.Value, now()); err == nil {
				return s, nil
			}
		}
	}
	return access.Session{}, err
}

// setCookie gives the browser a session. The cookie outlasts the session, so that a later request is known as expired.
func (p *page) setCookie(w http.ResponseWriter, r *http.Request, s access.Session) {
	secure := isSecure(r, s.Thread)
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r, secure, s.Thread), Value: access.Seal(p.Secrets[0], s), Path: pathOf(s.Thread),
		MaxAge: max(1, int(s.Most.Sub(now())/time.Second)), HttpOnly: true, Secure: secure,
		SameSite: http.SameSiteStrictMode,
	})
}

// isSecure reports whether a browser made a request over TLS, which may end at a proxy: the page's own origin is https,
// or the request has a cookie that is sent over TLS alone.
func isSecure(r *http.Request, id string) bool {
	return r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://") ||
		len(r.CookiesNamed(cookieName(r, true, id))) > 0
}

// cookieName returns the name of the cookie of a login, or of a share of a thread. It has the server's port, which
// browsers do not tell cookies apart by. Over TLS its prefix keeps other hosts and plain HTTP from setting it.
func cookieName(r *http.Request, secure bool, id string) string {
	name := "arbe"
	if _, port, err := net.SplitHostPort(r.Host); err == nil && port != "" {
		name += "-" + port
	}
	switch {
	case secure && id != "":
		return "__Secure-" + name + "-share" // __Host- asks for the path /
	case id != "":
		return name + "-share"
	case secure:
		return "__Host-" + name
	}
	return name
}
