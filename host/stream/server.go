package stream

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Server is the thread API over a Log. Its fields must not change while it serves.
type Server struct {
	Log     *Log
	Secrets [][]byte // verify tokens, and the first one signs them; each has at least MinSecret bytes
	// Open serves the Durable Streams protocol to everybody. It is for the protocol's test suite.
	Open bool
	// LongPoll is how long a reader is kept waiting for something new; 0 is 20 s.
	LongPoll time.Duration
	// Patience is how long a reader may take to accept a piece of what he reads, before he is dropped; 0 is 10 s. He comes again from where he was.
	Patience time.Duration
	// Closing ends the waits of readers when it is done, so that a server can stop.
	Closing context.Context
	Logger  *slog.Logger

	tokens  verifier
	metrics *metrics
}

// Limits of one request.
const (
	readChunk    = 1 << 20 // bytes read from the log at once for one reader
	writeTimeout = 10 * time.Second
	bodyTimeout  = 2 * time.Minute // for a client to send what it appends
	readyTimeout = 5 * time.Second
)

// Handler serves the thread API below /api/stream, the Durable Streams protocol below /v1/stream, and /healthz, /readyz and /metrics.
func (s *Server) Handler() http.Handler {
	s.tokens.secrets = s.Secrets
	mux := http.NewServeMux()
	name := "/api/stream/" + "{stream}"
	mux.HandleFunc("POST "+name, s.as(ScopeWrite, s.append))
	mux.HandleFunc("GET "+name, s.as(ScopeRead, s.read))
	mux.HandleFunc("POST "+name+"/token", s.as(ScopeRenew, s.renew))
	mux.HandleFunc("GET /healthz", s.healthz)
	if s.metrics != nil {
		mux.Handle("GET /metrics", s.metrics.handler())
	}
	mux.HandleFunc(BackupPath, s.backup)
	mux.HandleFunc("GET /readyz", s.ready)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff") // an entry's text is never a page
		if !s.Open || !strings.HasPrefix(r.URL.Path, protocolRoot) {
			w.Header().Set("Vary", "Authorization")
		}
		if strings.HasPrefix(r.URL.Path, protocolRoot) {
			s.protocol(w, r) // its names are not tidied
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// ready tells whether the log can be written.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := s.Log.engine.Check(ctx); err != nil {
		s.Logger.Warn("not ready", "error", err)
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "the log can't be written")
		return
	}
	fmt.Fprintln(w, "ok")
}

// as wraps a handler for whoever's token has the scope, on the thread that the path names.
func (s *Server) as(scope string, h func(http.ResponseWriter, *http.Request, Grant) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g, err := s.authorize(r, scope)
		if err == nil {
			err = h(w, r, g)
		}
		s.answerError(w, r, err)
	}
}

// write writes a piece of an answer to a reader who may be slow, and reports whether he took it.
func (s *Server) write(ctx context.Context, w http.ResponseWriter, rc *http.ResponseController, b []byte) bool {
	_ = rc.SetWriteDeadline(time.Now().Add(cmp.Or(s.Patience, writeTimeout))) // a writer without deadlines is a test's
	n, err := w.Write(b)
	s.metrics.sent(n)
	if err != nil && ctx.Err() == nil {
		s.metrics.dropped()
	}
	return err == nil
}
