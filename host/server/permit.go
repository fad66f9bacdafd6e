package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// authorize checks the request's token and that it is for the thread in the path.
func (s *Server) authorize(r *http.Request, scope string) (token.Grant, error) {
	name := r.PathValue("stream")
	if _, ok := thread.OfStream(name); !ok {
		return token.Grant{}, refuse(
			http.StatusNotFound,
			"not_found",
			"no such stream: want %s<threadId>, threadId of A-Z a-z 0-9 _ -",
			thread.StreamName(""),
		)
	}
	return s.permit(r.Context(), r.Header.Get("Authorization"), name, scope)
}

// permit returns what an Authorization header allows on a stream, or refuses.
func (s *Server) permit(ctx context.Context, authorization, name, scope string) (token.Grant, error) {
	signed := bearer(authorization)
	if signed == "" {
		return token.Grant{}, refuse(http.StatusUnauthorized, "no_token", "a bearer token is required")
	}
	g, err := s.verify(signed)
	switch {
	case err != nil:
		return token.Grant{}, refuse(http.StatusUnauthorized, "invalid_token", "%s", err)
	case !isThread(g.Stream) && strings.HasPrefix(name, thread.StreamName("")):
		return token.Grant{}, refuse(http.StatusUnauthorized, "invalid_token", "token has no thread as its subject")
	case g.Stream != name:
		return token.Grant{}, refuse(http.StatusForbidden, "wrong_thread", "the token is for another thread")
	case !g.Allows(scope):
		return token.Grant{}, refuse(http.StatusForbidden, "missing_scope", "the token lacks the scope %s", scope)
	}
	return g, s.permitHouse(ctx, g)
}

// verify returns what a token allows.
func (s *Server) verify(signed string) (token.Grant, error) {
	g, err := s.tokens.Verify(signed)
	if err == nil && strings.HasPrefix(g.Stream, thread.StreamName("")) && !isThread(g.Stream) {
		return token.Grant{}, token.ErrSubject
	}
	return g, err
}

// isThread reports whether a stream of this name is a thread's.
func isThread(name string) bool {
	_, is := thread.OfStream(name)
	return is
}

// threadOf returns the id of the thread that a grant is for.
func threadOf(g token.Grant) string {
	id, _ := thread.OfStream(g.Stream)
	return id
}

// writerOf returns what a grant binds the writer of its thread to.
func (s *Server) writerOf(g token.Grant) log.Writer {
	return log.Writer{Run: g.Run, Command: g.Command, Author: g.Author, Harnesses: s.Harnesses}
}

// bearer returns the token of an Authorization header; "" for none.
func bearer(authorization string) string {
	kind, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// holder returns the holder of a valid token.
func (s *Server) holder(token string) (string, bool) {
	g, err := s.verify(token)
	return g.Holder(), err == nil
}

// spend counts the bytes of a post against the quota of the grant's holder.
func (s *Server) spend(g token.Grant, bytes int) error {
	if s.posted == nil {
		return nil
	}
	who := g.Holder()
	if who == "" {
		return nil
	}
	if wait := s.posted.take(s.posted.holder(who), bytes, time.Now()); wait > 0 {
		refused := refuse(
			http.StatusTooManyRequests,
			"quota",
			"the token's holder has posted as many bytes as it may within an hour",
		)
		refused.header = map[string]string{"Retry-After": retryAfter(wait)}
		return refused
	}
	return nil
}

// renewAfter is how long after its run's end a renew token is good.
const renewAfter = time.Hour

// renew serves a fresh write token for the renew token's thread and run.
func (s *Server) renew(w http.ResponseWriter, r *http.Request, g token.Grant) error {
	if _, err := s.Log.Stat(r.Context(), g.Stream); err != nil && !errors.Is(err, log.ErrAbsent) {
		return err // a deleted thread takes nothing
	}
	if g.Run != "" {
		ended, ok, err := s.Log.ReceivedAt(r.Context(), threadOf(g), g.Run+".end.0")
		if err != nil {
			return err
		}
		if ok && time.Since(ended) > renewAfter {
			return refuse(http.StatusUnauthorized, "run_ended", "run %s ended more than %v ago", g.Run, renewAfter)
		}
	}
	until := time.Now().Add(token.WriteTTL)
	fresh := g // with all that the renew token is bound to
	fresh.Scope, fresh.Until = []string{token.ScopeWrite}, until
	token, err := token.Sign(s.Secrets[0], fresh)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(thread.Marshal(struct {
		JWT       string `json:"jwt"`
		ExpiresAt string `json:"expiresAt"`
	}{token, thread.Stamp(until)}), '\n')) // the client may be gone
	return nil
}
