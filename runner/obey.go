package runner

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
)

// obey follows the thread and ends the agent when somebody asks for it. A token that may not read the thread makes it deaf, and no more.
func (r *run) obey(ctx context.Context) error {
	select {
	case <-r.opened:
	case <-ctx.Done():
		return nil
	}
	// A request that names no run is meant for those that have started. From where this run's first entries stand, all that comes is later.
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
			r.Log.Info("asked to cancel", "by", e.AuthorID, "reason", p.Reason)
			r.end(deed{outcome.DidCancel, cancelWhy(e.AuthorID, p.Reason)})
			return thread.ErrStop
		}
		return nil
	}
	for {
		err := r.Client.Follow(ctx, offset, heed, nil)
		var se *thread.StatusError
		if !errors.As(err, &se) || se.Status != http.StatusUnauthorized {
			if err != nil {
				r.Log.Warn("the run can't be cancelled over its thread", "error", err)
			}
			return nil
		}
		select { // a token that has expired may yet be replaced
		case <-ctx.Done():
			return nil
		case <-time.After(deafFor):
		}
	}
}

// deafFor is how long nobody is heard after the token was refused.
const deafFor = 5 * time.Second

// cancelWhy says who asked and why.
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
