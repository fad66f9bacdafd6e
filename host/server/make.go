package server

import (
	"net/http"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
)

// makeThread serves PUT of a thread. It is made without entries: what a body had would be lost where the thread exists.
func (s *Server) makeThread(w http.ResponseWriter, r *http.Request, g token.Grant) error {
	if n, _ := r.Body.Read(make([]byte, 1)); n > 0 {
		return request.Refuse(http.StatusBadRequest, "body",
			"PUT makes a thread without entries: want no body, and post them")
	}
	v, made, err := s.Log.Create(r.Context(), g.Stream, log.Want{Type: request.JSON})
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set(request.HeaderNext, request.Offset(v.Tail()))
	w.WriteHeader(request.MadeStatus(made))
	return nil
}
