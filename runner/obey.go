package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// obey follows the thread, and ends the agent when an entry asks for it. While the thread can't be read, the run
// continues.
func (r *run) obey(ctx context.Context) error {
	if r.awaitOpen(ctx) != nil {
		return nil
	}
	offset, began := r.offset, r.offset != ""
	obey := func(e thread.Entry) error {
		if e.ID == startedID(r.RunID) {
			began = true
		}
		if p, is := r.asksToEnd(e, began); is {
			r.obeyed(e, p)
			return client.ErrStop
		}
		return nil
	}
	follow := func() (err error) {
		var asked bool
		if offset == "" { // of a run that the host, or an earlier worker, has begun
			offset, asked, err = r.obeyBegun(ctx)
			began = offset != "0"
		}
		if err == nil && !asked {
			err = r.Client.Only(signals).Follow(ctx, offset, obey, nil)
		}
		return err
	}
	r.keepFollowing(ctx, "requests to cancel", follow, func() { offset, began = "0", false })
	return nil
}

// keepFollowing calls follow until it has no error, it stopped, or ctx is done. what does not arrive meanwhile. A
// thread that was restored to an earlier state is read from its start, after rewind.
func (r *run) keepFollowing(ctx context.Context, what string, follow func() error, rewind func()) {
	logged := false
	for wait := r.intervals.retryRead; ; wait = min(2*wait, maxRetryRead) {
		err := follow()
		switch {
		case err == nil, errors.Is(err, client.ErrStop):
			return
		case errors.Is(err, client.ErrRewound):
			r.Log.Warn("thread was restored to an earlier state; reading it from its start")
			rewind()
		case !logged:
			r.Log.Warn("follow thread; "+what+" do not arrive, retrying", "error", err)
			logged = true
		}
		if !pause.For(ctx, wait) {
			return
		}
	}
}

// signals is the prefix of the types of all signals.
const signals = "signal."

// asksToEnd reports whether an entry asks this run to end. A request without a run id is for the runs that have
// started: it must come after this run's started entry.
func (r *run) asksToEnd(e thread.Entry, began bool) (p thread.Cancel, is bool) {
	is = json.Unmarshal(e.Payload, &p) == nil && p.Type == thread.TypeCancel &&
		(p.RunID == r.RunID || p.RunID == "" && began)
	return p, is
}

// obeyed ends the agent for a request.
func (r *run) obeyed(e thread.Entry, p thread.Cancel) {
	r.Log.Info("cancel requested", "by", e.AuthorID, "reason", p.Reason)
	r.end(cause{outcome.ActionCancel, cancelWhy(e.AuthorID, p.Reason)})
}

// obeyBegun obeys a request that came before now. It reads back from the thread's end to the run's beginning, and
// returns the offset of that end. From a server that can't read backwards it reads nothing: the offset is "0".
func (r *run) obeyBegun(ctx context.Context) (offset string, asked bool, err error) {
	var first struct {
		thread.Entry
		thread.Cancel
	}
	began := true
	offset, err = r.Client.Only(signals).ReadBack(ctx, "now", func(e thread.Entry) error {
		if p, is := r.asksToEnd(e, began); is {
			first.Entry, first.Cancel, asked = e, p, true
		}
		switch e.ID {
		case runningID(r.RunID):
			return client.ErrStop
		case startedID(r.RunID):
			began = false
		}
		return nil
	})
	if err != nil {
		return "", false, err
	}
	if asked {
		r.obeyed(first.Entry, first.Cancel)
	}
	return cmp.Or(offset, "0"), asked, nil
}

// The first and the longest wait before the thread is read again after the server refused it. An expired token may
// yet be replaced.
const (
	retryRead    = 5 * time.Second
	maxRetryRead = time.Minute
)

// cancelWhy is the reason of a cancel request, for people: "too dear (requested by ada)".
func cancelWhy(author, reason string) string {
	switch {
	case author == "" && reason == "":
		return "requested on the thread"
	case author == "":
		return reason
	case reason == "":
		return "requested by " + author
	}
	return fmt.Sprintf("%s (requested by %s)", reason, author)
}
