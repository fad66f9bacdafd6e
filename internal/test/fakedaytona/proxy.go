package fakedaytona

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// proxy passes a request on to the daemon of its box, and keeps the box awake.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request) {
	d, release, err := s.pass(r)
	defer release()
	switch {
	case err != nil:
		complain(w, r, err)
	case d == nil:
		w.WriteHeader(http.StatusBadGateway)
	default:
		http.StripPrefix("/toolbox/"+r.PathValue("id"), d).ServeHTTP(&mortal{ResponseWriter: w, d: d}, r)
	}
}

// pass finds the daemon that a request is for; nil where it is dead.
func (s *Server) pass(r *http.Request) (d *daemon, release func(), err error) {
	release = func() {}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.PathValue("id")
	b := s.boxes[id]
	if b != nil {
		s.settle(b)
	}
	switch auth := r.Header.Get("Authorization"); {
	case auth == "":
		return nil, release, toolError{
			http.StatusUnauthorized,
			"UNAUTHORIZED",
			"missing authentication: a Bearer token, a preview token or a cookie is required",
		}
	case auth != "Bearer "+s.Key, b == nil, b.State == destroyed && s.now().Sub(b.seen) >= s.ProxyCache:
		return nil, release, toolError{
			http.StatusUnauthorized,
			"UNAUTHORIZED",
			"authentication failed: Bearer token is invalid",
		}
	}
	if b.State != destroyed {
		b.seen = s.now()
	}
	switch {
	case b.State == destroyed, b.State == archived:
		return nil, release, toolError{
			http.StatusNotFound,
			"NOT_FOUND",
			fmt.Sprintf("not found: sandbox container not found: %s", id),
		}
	case b.State != started:
		return nil, release, toolError{
			http.StatusBadRequest,
			"BAD_REQUEST",
			"bad request: no IP address found. Is the Sandbox started?",
		}
	}
	if !strings.EqualFold(r.Header.Get("X-Daytona-Skip-Last-Activity-Update"), "true") {
		b.Activity++
		b.open++
		b.last = s.now()
		var once sync.Once
		release = func() {
			once.Do(func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				b.open--
				b.last = s.now()
			})
		}
		context.AfterFunc(r.Context(), release) // a command outlives its client, and keeps no box awake
	}
	return b.d, release, nil
}

// toolError is an error of the proxy or of a daemon.
type toolError struct {
	status        int
	code, message string
}

func (e toolError) Error() string { return e.message }

func complain(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := err.(toolError) // never wrapped
	if !ok {
		e = toolError{http.StatusInternalServerError, "INTERNAL_SERVER_ERROR", err.Error()}
	}
	reply(w, e.status, map[string]any{
		"statusCode": e.status, "message": e.message, "code": e.code,
		"timestamp": time.Now().UTC().Format(time.RFC3339), "path": r.URL.Path, "method": r.Method,
	})
}

// mortal is a daemon's answer. Where the daemon has died before it began, it is the proxy's.
type mortal struct {
	http.ResponseWriter
	d     *daemon
	began bool
	lost  bool
}

func (m *mortal) WriteHeader(status int) {
	if m.began {
		return
	}
	m.began = true
	if m.lost = m.d.isDead(); m.lost {
		clear(m.Header())
		status = http.StatusBadGateway
	}
	m.ResponseWriter.WriteHeader(status)
}

func (m *mortal) Write(b []byte) (int, error) {
	m.WriteHeader(http.StatusOK)
	if m.lost {
		return len(b), nil
	}
	return m.ResponseWriter.Write(b)
}

// Unwrap lets a connection be taken over.
func (m *mortal) Unwrap() http.ResponseWriter { return m.ResponseWriter }
