package server

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Bounds of ending a task that waits.
const (
	mostCancel    = 128 << 10        // bytes of a request to cancel
	withdrawUntil = 30 * time.Second // for one task
)

// settleCancelled settles a thread on which one of the entries asks for the end of a run while none is open. A
// delegated task that waits to be launched has no runner that would see it. What fails is left to its provisioner.
func (s *Server) settleCancelled(ctx context.Context, id string, entries []thread.Entry) {
	if s.Settle == nil || s.Rows == nil || s.Index == nil || !slices.ContainsFunc(entries, isCancel) {
		return
	}
	if v, err := s.Index.Summary(ctx, id); err != nil || v.Status == thread.StatusRunning {
		return
	}
	if err := s.settleNow(ctx, id); err != nil {
		s.Logger.Warn("task that waits not ended: its provisioner does it", "thread", id, "error", err)
	}
}

// settleNow settles a thread that a request waits for.
func (s *Server) settleNow(ctx context.Context, id string) error {
	limited, cancel := context.WithTimeout(ctx, withdrawUntil)
	defer cancel()
	_, err := s.Settle(limited, id)
	return err
}

// isCancel reports whether an entry asks for the end of a run.
func isCancel(e thread.Entry) bool {
	var p thread.Cancel
	return len(e.Payload) <= mostCancel && bytes.Contains(e.Payload, []byte(thread.TypeCancel)) &&
		json.Unmarshal(e.Payload, &p) == nil && p.Type == thread.TypeCancel
}
