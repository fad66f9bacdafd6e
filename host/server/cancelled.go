package server

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/server/request"
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

// withdraw ends the task of a thread that is to be deleted, so that the thread that delegated it gets its end. A thread
// whose task does not wait stays as it is.
func (s *Server) withdraw(ctx context.Context, m member.Member, id string) error {
	t, err := s.rowOf(ctx, m, id)
	if err != nil || !t.Waits || s.Settle == nil {
		return err
	}
	_, err = s.Log.Append(ctx, id, []thread.Entry{{
		ID: uuid.NewString(), TS: thread.Stamp(time.Now()), AuthorID: m.Agent, Payload: thread.Marshal(thread.Cancel{
			Signal: thread.Signal{Type: thread.TypeCancel}, Reason: "its thread is deleted",
		}),
	}})
	if err != nil {
		return err
	}
	if err := s.settleNow(ctx, id); err != nil {
		s.Logger.Warn("task of a thread to delete not ended", "thread", id, "error", err)
		return request.Refuse(http.StatusServiceUnavailable, "unsettled",
			"the thread's task could not be ended; the server's log has why").With("Retry-After", 5)
	}
	return nil
}
