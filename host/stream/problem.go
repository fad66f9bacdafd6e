package stream

import (
	"errors"
	"fmt"
	"net/http"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// problem is an answer that is no success.
type problem struct {
	status  int
	code    string
	message string
	entries []thread.BadEntry
	header  map[string]string
}

func (p *problem) Error() string { return p.message }

func refuse(status int, code, format string, args ...any) *problem {
	return &problem{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// answerError answers a request that failed.
func (s *Server) answerError(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	h := w.Header()
	var p *problem
	var conflict *ConflictError
	switch {
	case errors.As(err, &p):
	case errors.As(err, &conflict):
		p = &problem{status: http.StatusConflict, code: "conflict", message: conflict.Error(), entries: conflict.Entries}
	case errors.Is(err, engine.ErrFull):
		p = refuse(http.StatusInsufficientStorage, "full", "the log's disk is full: nothing can be appended until there is room")
		h.Set("Retry-After", "30")
	case errors.Is(err, engine.ErrStale):
		p = refuse(http.StatusServiceUnavailable, "stale", "%s: come again", engine.ErrStale)
		h.Set("Retry-After", "1")
	case r.Context().Err() != nil:
		return // the client is gone
	default:
		s.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		p = refuse(http.StatusServiceUnavailable, "unavailable", "the log can't do this now")
		h.Set("Retry-After", "1")
	}
	if p.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer error="invalid_token"`)
	}
	for name, value := range p.header {
		h.Set(name, value)
	}
	h.Set("Content-Type", "application/json")
	h.Del(headerEncoding)
	w.WriteHeader(p.status)
	var body struct {
		Error struct {
			Code    string            `json:"code"`
			Message string            `json:"message"`
			Entries []thread.BadEntry `json:"entries,omitempty"`
		} `json:"error"`
	}
	body.Error.Code, body.Error.Message, body.Error.Entries = p.code, p.message, p.entries
	_, _ = w.Write(append(thread.Marshal(body), '\n')) // the client may be gone
}
