// Package server serves a log over HTTP: the thread API, with access by signed tokens, limits, measurements, backups
// and health. SERVE.md has what it promises to clients.
//
// It mounts the APIs of the packages below it: streams has the Durable Streams protocol, houses what members do. What
// all handlers share is a Core of package request; streams and houses do not know each other.
package server

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server/houses"
	"arbe.0sk.ar/runner/host/server/metrics"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/server/streams"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Server serves a Log over HTTP. Its fields must not change while it serves.
type Server struct {
	Log     *log.Log
	Secrets [][]byte // verify tokens, and the first one signs; each has at least token.MinSecret bytes
	// Insecure serves the Durable Streams protocol without tokens, to programs and pages of this machine. It is for the
	// protocol's test suite.
	Insecure bool
	// LongPoll is how long a reader waits for a change; 0 is 20 s.
	LongPoll time.Duration
	// WriteTimeout is how long a client may take to accept 64 KiB of an answer; 0 is 10 s. Then its connection is
	// closed, and it reads on from its offset.
	WriteTimeout time.Duration
	// Closing ends the waits of readers when it is done, so that a server can stop.
	Closing context.Context
	Logger  *slog.Logger
	// Budget is of the memory of all requests; nil for a quarter of memory.Limit. SERVE.md has the answers beyond it.
	Budget *memory.Budget

	Metrics *metrics.Set // nil for a server that serves none
	Rate    Rate         // of requests, by Front
	Access  io.Writer    // for the access log, by Front; nil for none

	// TokenQuota is how many bytes the holder of one token may post within an hour, and at once; 0 is no quota. It is
	// at least the size of the largest post.
	TokenQuota int64

	// Index covers the threads of Log; nil for no list of threads.
	Index *index.Index

	// Settle settles a thread now; nil for a server that settles none.
	Settle func(ctx context.Context, threadID string) (Settled, error)

	// Doors decide what members of houses may open; nil for a server without houses.
	Doors *member.Doors

	// Unserved returns why the rows can't be read now, in words for everybody; nil for a server without houses.
	Unserved func(ctx context.Context) error

	// What members do over HTTP is by these, as fields of houses.API; they need Doors.
	Rows        rows.Store
	CheckRecipe func(r *rows.Recipe) error
	Delegate    func(ctx context.Context, t rows.Task) (made rows.Task, fresh bool, err error)
	Commands    houses.Commands

	// Harnesses are those whose lines threads take; nil for session's list.
	Harnesses session.List

	// Version is the program's, for /healthz and the header Server; "" is dev.
	Version string

	// Page serves the paths of the page for people, with an access of its own; nil for a server without one.
	Page http.Handler

	core    *request.Core
	streams *streams.API
	houses  *houses.API
	settles settles
}

// Handler returns the handler of the thread API below /api/stream, of threads, environments and secrets below /api, of
// the Durable Streams protocol below /v1/stream, and of /healthz, /readyz and /metrics.
func (s *Server) Handler() http.Handler {
	return httpd.Paced(s.handler(), cmp.Or(s.WriteTimeout, httpd.WriteTimeout))
}

// version is the program's version.
func (s *Server) version() string { return cmp.Or(s.Version, "dev") }

// handler is Handler without timeouts.
func (s *Server) handler() http.Handler {
	s.assemble()
	mux, serves := s.routes(), "arbe/"+s.version()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", serves)
		w.Header().Set("X-Content-Type-Options", "nosniff") // no entry is taken for a page
		ofStreams := strings.HasPrefix(r.URL.Path, streams.Root)
		if s.Page != nil && ofPage(r.URL.Path) {
			s.Page.ServeHTTP(w, r)
			return
		}
		if !s.Insecure || !ofStreams {
			w.Header().Set("Vary", "Authorization")
		}
		if ofStreams {
			s.streams.ServeHTTP(w, r) // ServeMux would clean its names
			return
		}
		mux.ServeHTTP(w, r)
	})
	if s.Insecure {
		return localOnly(h)
	}
	return h
}

// assemble makes the core and the APIs on it.
func (s *Server) assemble() {
	s.core = &request.Core{
		Log: s.Log, Tokens: token.NewVerifier(s.Secrets), Doors: s.Doors, Insecure: s.Insecure,
		Harnesses: s.Harnesses,
		Budget:    s.Budget, Metrics: s.Metrics, Logger: s.Logger,
		LongPoll: cmp.Or(s.LongPoll, 20*time.Second), Closing: cmp.Or(s.Closing, context.Background()),
	}
	if s.core.Budget == nil {
		s.core.Budget = memory.NewBudget(memory.Limit() / 4)
	}
	if s.core.Metrics == nil {
		s.core.Metrics = metrics.New("", nil, "")
	}
	s.core.Metrics.OfBudget(s.core.Budget)
	if s.TokenQuota > 0 {
		most := max(s.TokenQuota, thread.MaxBody)
		s.core.Posted = request.NewLimiter(float64(s.TokenQuota)/time.Hour.Seconds(), int(most))
	}
	s.streams = &streams.API{Core: s.core}
	s.houses = &houses.API{
		Core: s.core, Rows: s.Rows, Index: s.Index, CheckRecipe: s.CheckRecipe, Delegate: s.Delegate,
		Commands: s.Commands,
	}
	if s.Settle != nil {
		s.houses.Settle = s.settleNow
	}
}

// routes returns the routes of all paths but those of streams and the page.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	name := "/api/stream/" + "{stream}"
	mux.HandleFunc("POST "+name, s.as(token.ScopeWrite, s.append))
	mux.HandleFunc("GET "+name, s.as(token.ScopeRead, s.read))
	mux.HandleFunc("PUT "+name, s.as(token.ScopeWrite, s.makeThread))
	mux.HandleFunc("GET "+name+"/entries/{entry}", s.as(token.ScopeRead, s.entry))
	mux.HandleFunc("POST "+name+"/token", s.as(token.ScopeRenew, s.renew))
	s.serveThreads(mux)
	s.houses.Register(mux)
	mux.HandleFunc("GET /healthz", s.healthz)
	if s.Metrics != nil {
		mux.Handle("GET /metrics", s.Metrics.Handler(s.readsAll, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			request.Refuse(http.StatusServiceUnavailable, "busy", "too many ask for the measurements").Write(w)
		}))
	}
	mux.HandleFunc(BackupPath, s.backup)
	mux.HandleFunc("GET /readyz", s.ready)
	return mux
}

// as wraps a handler of a thread's path for tokens with the scope.
func (s *Server) as(scope string, h func(http.ResponseWriter, *http.Request, token.Grant) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("stream")
		if !request.IsThread(name) {
			s.core.AnswerError(w, r, request.Refuse(http.StatusNotFound, "not_found",
				"no such stream: want %s<threadId>, threadId of A-Z a-z 0-9 _ -", thread.StreamName("")))
			return
		}
		g, err := s.core.Permit(r.Context(), r.Header.Get("Authorization"), name, scope)
		if err == nil {
			err = h(w, r, g)
		}
		s.core.AnswerError(w, r, err)
	}
}
