package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server/houses"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// listPermit is the part of the list of threads that a request may read.
type listPermit struct {
	grant token.Grant
	only  func(context.Context, []string) (map[string]bool, error) // which of some threads; nil for all
	rows  *houses.Query                                            // nil for a list that is read from the index
}

// permitList checks that a request may read the list of threads.
func (s *Server) permitList(r *http.Request) (p listPermit, err error) {
	m, is, err := s.core.Member(r)
	switch {
	case err != nil:
		return p, err
	case is:
		p.grant, p.only = request.MemberGrant(m), s.Doors.Filter(m.Agent)
		p.rows, err = s.houses.QueryOfMember(r.URL.Query(), m)
		return p, err
	}
	g, err := s.core.Permit(r.Context(), r.Header.Get("Authorization"), token.SubjectThreads, token.ScopeThreads)
	if err != nil {
		return p, err
	}
	if p.grant = g; s.Doors != nil && g.House != "" {
		p.only = func(ctx context.Context, ids []string) (map[string]bool, error) {
			return s.Doors.Open(ctx, member.Member{Houses: []string{g.House}}, ids)
		}
	}
	p.rows, err = s.houses.QueryOfToken(r.URL.Query(), g)
	return p, err
}

// readsAll reports whether a request has a token of the list of all threads, of whatever house.
func (s *Server) readsAll(r *http.Request) bool {
	g, err := s.core.Verify(request.Bearer(r.Header.Get("Authorization")))
	return err == nil && g.Stream == token.SubjectThreads && g.Allows(token.ScopeThreads) && g.House == ""
}

// permitSummary checks that a request may read the summary of a thread: with a token of the thread or of the list, or
// as a member of its house. For a member it returns the thread's row, where there are rows.
func (s *Server) permitSummary(r *http.Request, id string) (*rows.Thread, error) {
	m, is, err := s.core.Member(r)
	switch {
	case err != nil:
		return nil, err
	case is && s.Rows != nil:
		return s.houses.Row(r.Context(), m, id)
	case is:
		return nil, s.core.MayOpen(r.Context(), m, id)
	case !thread.ValidThread(id):
		return nil, request.ErrBadThread
	}
	authorization := r.Header.Get("Authorization")
	if g, err := s.core.Verify(request.Bearer(authorization)); err != nil || g.Stream != token.SubjectThreads {
		_, err := s.core.Permit(r.Context(), authorization, thread.StreamName(id), token.ScopeRead)
		return nil, err
	}
	g, err := s.core.Permit(r.Context(), authorization, token.SubjectThreads, token.ScopeThreads)
	if err == nil && s.Doors != nil && g.House != "" {
		err = s.core.MayOpen(r.Context(), member.Member{Houses: []string{g.House}}, id)
	}
	return nil, err
}

// memberEntries serves the entries of a thread to members of its house, as the thread API does.
func (s *Server) memberEntries(w http.ResponseWriter, r *http.Request) error {
	g, err := s.core.PermitMember(r, token.ScopeRead)
	if err != nil {
		return err
	}
	return s.read(w, r, g)
}

// renewAfter is how long after its run's end a renew token is good.
const renewAfter = time.Hour

// renew serves a fresh write token for the renew token's thread and run.
func (s *Server) renew(w http.ResponseWriter, r *http.Request, g token.Grant) error {
	if _, err := s.Log.Stat(r.Context(), g.Stream); err != nil && !errors.Is(err, log.ErrAbsent) {
		return err // a deleted thread takes nothing
	}
	if g.Run != "" {
		ended, ok, err := s.Log.ReceivedAt(r.Context(), request.ThreadOf(g), g.Run+".end.0")
		if err != nil {
			return err
		}
		if ok && time.Since(ended) > renewAfter {
			return request.Refuse(http.StatusUnauthorized, "run_ended", "run %s ended more than %v ago", g.Run,
				renewAfter)
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
	request.WriteJSON(w, http.StatusOK, struct {
		JWT       string `json:"jwt"`
		ExpiresAt string `json:"expiresAt"`
	}{token, thread.Stamp(until)})
	return nil
}
