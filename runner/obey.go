package runner

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
)

// obey follows the thread, and ends the agent when an entry asks for it. While the thread can't be read, the run goes
// on.
func (r *run) obey(ctx context.Context) error {
	select {
	case <-r.opened:
	case <-ctx.Done():
		return nil
	}
	// A request without a run id is for the runs that have started: it must come after this run's started entry.
	offset, began := "0", false
	if r.offset != "" {
		offset, began = r.offset, true
	}
	heed := func(e thread.Entry) error {
		if e.ID == startedID(r.RunID) {
			began = true
		}
		var p thread.Cancel
		if json.Unmarshal(e.Payload, &p) != nil || p.Type != thread.TypeCancel {
			return nil
		}
		if p.RunID == r.RunID || p.RunID == "" && began {
			r.Log.Info("cancel requested", "by", e.AuthorID, "reason", p.Reason)
			r.end(cause{outcome.ActionCancel, cancelWhy(e.AuthorID, p.Reason)})
			return thread.ErrStop
		}
		return nil
	}
	logged := false
	for wait := r.intervals.retryRead; ; wait = min(2*wait, maxRetryRead) {
		err := r.Client.Follow(ctx, offset, heed, nil)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, thread.ErrRewound):
			r.Log.Warn("thread was restored to an earlier state; reading it from its start")
			offset, began = "0", false
		case !logged:
			r.Log.Warn("follow thread; requests to cancel do not arrive, retrying", "error", err)
			logged = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// The first and the longest wait before the thread is read again after the server refused it. An expired token may
// yet be replaced.
const (
	retryRead    = 5 * time.Second
	maxRetryRead = time.Minute
)

// cancelWhy is the reason of a cancel request, for people.
func cancelWhy(author, reason string) string {
	why := "asked for on the thread"
	if author != "" {
		why += " by " + author
	}
	if reason != "" {
		why += ": " + reason
	}
	return why
}
