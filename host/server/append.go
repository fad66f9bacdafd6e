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
	if !request.IsJSON(r.Header.Get("Content-Type")) {
		return request.Refuse(http.StatusUnsupportedMediaType, "content_type", "want application/json")
	}
	l := s.core.Lease(r, g)
	defer l.Free()
	body, err := request.ReadBody(w, r, thread.MaxBody, l)
	if err == nil {
		err = s.core.Spend(g, len(body))
	}
	if err != nil {
		return err
	}
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
