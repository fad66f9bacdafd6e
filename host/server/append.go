package server

import (
	"bytes"
	"net/http"
	"strconv"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// append serves the post of one entry or an array of them.
func (s *Server) append(w http.ResponseWriter, r *http.Request, g token.Grant) error {
	body, free, err := s.core.ReadJSON(w, r, g, thread.MaxBody)
	if err != nil {
		return err
	}
	defer free()
	if len(bytes.TrimSpace(body)) == 0 {
		return request.Refuse(http.StatusBadRequest, "empty", "the body is empty")
	}
	entries, err := log.ParseEntries(body, s.core.WriterOf(g))
	if err != nil {
		return err
	}
	res, err := s.Log.Append(r.Context(), request.ThreadOf(g), entries)
	if err != nil {
		return err
	}
	s.settleCancelled(r.Context(), request.ThreadOf(g), entries)
	next := request.Offset(res.Next)
	h := w.Header()
	h.Set(request.HeaderNext, next)
	h.Set("Content-Type", "application/json")
	b := append(append(make([]byte, 0, 80), `{"nextOffset":"`...), next...)
	b = strconv.AppendInt(append(b, `","appended":`...), int64(res.Appended), 10)
	b = strconv.AppendInt(append(b, `,"duplicates":`...), int64(res.Duplicates), 10)
	_, _ = w.Write(append(b, "}\n"...)) // the client may be gone
	return nil
}

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
