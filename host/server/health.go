package server

import (
	"context"
	"net/http"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// healthTimeout bounds what /healthz asks of the engine. It answers without what it could not learn.
const healthTimeout = time.Second

// health is the answer of /healthz. It is 200 for as long as the process serves requests, whatever the state of the engine: /readyz reports that.
type health struct {
	Status string `json:"status"` // ok
	// Installation is Log.Installation; left out while it is not known.
	Installation string `json:"installation,omitempty"`
	// WritableSince is Log.WritableSince.
	WritableSince string `json:"writableSince"`
}

// healthz answers that the process runs, and since when its log can be written.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	h := health{Status: "ok"}
	var err error
	if h.Installation, err = s.Log.Installation(ctx); err != nil {
		s.Logger.Warn("installation id unknown", "error", err)
	}
	h.WritableSince = thread.Stamp(s.Log.WritableSince(ctx))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(thread.Marshal(h), '\n')) // the client may be gone
}
