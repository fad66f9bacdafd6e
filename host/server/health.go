package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/thread"
)

// healthTimeout bounds the calls of /healthz to the engine. The answer leaves out what they did not return.
const healthTimeout = time.Second

// health is the answer of /healthz, which is 200 while the process serves requests. /readyz reports the state of the
// engine.
type health struct {
	Status  string `json:"status"`  // ok
	Version string `json:"version"` // of the program
	// Installation is Log.Installation; left out until it is read.
	Installation string `json:"installation,omitempty"`
	// WritableSince is Log.WritableSince.
	WritableSince string `json:"writableSince"`
}

// healthz reports that the process runs, and since when its log can be written.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	h := health{Status: "ok", Version: s.version()}
	var err error
	if h.Installation, err = s.Log.Installation(ctx); err != nil {
		s.Logger.Warn("installation id unknown", "error", err)
	}
	h.WritableSince = thread.Stamp(s.Log.WritableSince(ctx))
	w.Header().Set("Cache-Control", "no-store")
	request.WriteJSON(w, http.StatusOK, h)
}

// readyTimeout bounds the check of the log by /readyz.
const readyTimeout = 5 * time.Second

// ready reports whether the log can be written, and beside it whether members of houses are served: a server whose
// database is away or has another schema still serves threads and runs.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := s.Log.Engine().Check(ctx); err != nil {
		s.Logger.Warn("not ready", "error", err)
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "the log can't be written")
		return
	}
	fmt.Fprintln(w, "ok")
	if s.Unserved == nil {
		return
	}
	if err := s.Unserved(ctx); err != nil {
		fmt.Fprintf(w, "members of houses have to wait: %v\n", err)
	}
}
