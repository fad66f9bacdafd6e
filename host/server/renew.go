package server

import (
	"errors"
	"net/http"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

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
