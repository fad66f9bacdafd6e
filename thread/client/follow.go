package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// Waits of Follow where the server can't be asked to wait, or is away.
const (
	quickPoll = time.Second
	slowPoll  = 15 * time.Second
)

// ErrStop is returned by f to end a Follow, which then returns nil.
var ErrStop = errors.New("stop following")

// ErrRewound ends a Follow whose offset the server refuses: the thread ends before it, as after a restore from a
// backup. What was passed on may no longer be there, and what comes has to be read from the start.
var ErrRewound = errors.New("the thread ends before the place that was read up to: it was restored to an earlier state")

// Follow passes the thread's entries from offset on to f as they come. It asks the server to wait for them, and polls
// one that doesn't. It waits for a thread that nobody has written yet and for a server that is away, and ends when f
// returns an error, when the server refuses the token or the request, when the thread is Gone, with ErrRewound, or when
// ctx is done (nil). tail, where there is one, is asked each time when all that is there has been passed, and ends it,
// too.
func (c *Client) Follow(ctx context.Context, offset string, f func(thread.Entry) error, tail func() bool) error {
	return c.Only().Follow(ctx, offset, f, tail)
}

// Follow is Client.Follow for the selected entries.
func (s Selection) Follow(ctx context.Context, offset string, f func(thread.Entry) error, tail func() bool) error {
	last := "" // the id of an entry that the thread has unless it was deleted or restored to an earlier state
	r := s.reading(offset, func(e thread.Entry) error {
		if thread.TypeOf(e.Payload) != thread.TypeHeartbeat { // old heartbeats are deleted
			last = e.ID
		}
		return f(e)
	})
	live, doubt := !s.c.polled.Load(), false
	failures := s.c.outage.failures()
	away := quickPoll // between two tries of a server that is away
	waitAway := func() {
		pause.For(ctx, away)
		away = min(2*away, slowPoll)
	}
	for ctx.Err() == nil {
		if now := s.c.outage.failures(); now != failures && last != "" && !s.c.scanned.Load() {
			switch err := s.c.present(ctx, last); {
			case err == nil:
				failures = now
			case Final(err) && !missing(err):
				return err
			default:
				waitAway()
				continue
			}
		}
		began, from := time.Now(), r.offset
		r.wait, r.arrived = live, time.Time{}
		page, err := r.toTail(ctx)
		took := time.Since(began)
		switch {
		case errors.Is(r.own, ErrStop):
			return nil
		case r.own != nil:
			return r.own
		case missing(err):
			if tail != nil && tail() {
				return nil
			}
			failures = -1 // what comes may be another thread
			pause.For(ctx, quickPoll)
			continue
		case errors.Is(err, ErrRewound):
			return ErrRewound
		case live && unwaited(err):
			live, doubt = false, true // whether it was that the next read shows
			continue
		case err != nil && Final(err):
			return err
		case err != nil:
			waitAway()
			continue
		case tail != nil && tail():
			return nil
		}
		away = quickPoll
		if doubt && !s.c.polled.Swap(true) {
			s.c.log().Info("the thread server can't be asked to wait for entries; polling it")
		}
		switch page.Next {
		case "": // all is read again each time: the longer that takes, the less often
			pause.For(ctx, min(max(quickPoll, 10*took), slowPoll))
		case from:
			pause.For(ctx, quickPoll-took) // after a server that has waited this is no pause at all
		}
	}
	return nil
}

// present returns ErrRewound where the thread lacks an entry that it had: a server that was away may come back with
// another state. One that gives no single entries would have to be read whole to show it.
func (c *Client) present(ctx context.Context, id string) error {
	_, ok, err := c.Entry(ctx, id)
	if err == nil && !ok {
		return ErrRewound
	}
	return err
}

// missing reports whether the thread was never written.
func missing(err error) bool { return NotFound(err) && !Gone(err) }

// unwaited reports whether err may be the answer of a server that can't be asked to wait, or for pieces.
func unwaited(err error) bool {
	switch statusOf(err) {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return true
	}
	return false
}
