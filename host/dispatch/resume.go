package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// ErrBusy is returned by a Host's Resume where another run has the thread: it is tried again.
var ErrBusy = errors.New("another run has the thread")

// Held is the error of a Host's Resume where the run waits for others of its house: it is tried again.
type Held struct{ Reason string }

// Error implements error.
func (h *Held) Error() string { return "the run waits: " + h.Reason }

// Tries to launch a run.
const (
	mostTries  = 10
	leastPause = 2 * time.Second
	mostPause  = time.Minute
	busyPause  = 10 * time.Second
	heldPause  = 2 * time.Second // shorter than its turn lasts
)

// resuming is the run that this host launches on a thread, or has launched. It stands until the thread needs another
// one, or none.
type resuming struct {
	run   string
	busy  bool      // it is being launched
	held  bool      // it waits for others of its house
	said  bool      // that is on the thread
	done  bool      // nothing is left to do for it
	tries int       // that have failed
	next  time.Time // not tried before
}

// resume launches the first of the runs that a thread needs and may have, beside the reactions, unless this host
// launches one there now. all is as of the server's time now. It returns in how long the caller has to look again; zero
// for never.
func (h *Host) resume(ctx context.Context, id string, all []Resume, room Room, now time.Time) time.Duration {
	i := slices.IndexFunc(all, room.resumes)
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.resumes[id]
	switch {
	case x != nil && x.busy: // its end has the thread looked at
		return 0
	case i < 0 || h.Resume == nil:
		delete(h.resumes, id)
		return 0
	case x == nil || x.run != all[i].Run:
		x = &resuming{run: all[i].Run}
		h.resumes[id] = x
	case x.done, x.held && h.leaves():
		return 0
	}
	r := all[i]
	if wait := max(r.From.Sub(now), time.Until(x.next)); wait > 0 {
		return wait
	}
	x.busy, r.Last = true, x.tries+1 >= mostTries
	h.running.Go(func() { h.launch(ctx, id, r, x) })
	return 0
}

// launch launches a run once there is a place for it.
func (h *Host) launch(ctx context.Context, id string, r Resume, x *resuming) {
	select {
	case h.places <- struct{}{}:
	case <-ctx.Done():
		return
	}
	err := h.Resume(ctx, id, r)
	held, waits := errors.AsType[*Held](err)
	if waits {
		h.hold(ctx, id, r, x, held)
	}
	<-h.places
	if pause := h.launched(x, err); err != nil && ctx.Err() == nil {
		if !waits {
			h.Log.Warn("a run is not launched, and is tried again", "thread", id, "run", r.Run, "error", err,
				"after", pause)
		}
		h.wake(ctx, id)
	}
}

// hold posts that a run waits for others of its house, once. Another host may have posted it with another reason.
func (h *Host) hold(ctx context.Context, id string, r Resume, x *resuming, held *Held) {
	if x.said { // by this call alone: one launches at a time
		return
	}
	err := h.Threads(id).Append(ctx, thread.RunWaits(r.Run, r.Chat, held.Reason))
	x.said = err == nil || errors.Is(err, ErrTaken) || errors.Is(err, ErrGone) || errors.Is(err, ErrRefused)
	if x.said {
		h.Log.Info("a run waits for its house", "thread", id, "run", r.Run, "reason", held.Reason)
	} else if ctx.Err() == nil {
		h.Log.Warn("a run waits for its house: not posted yet", "thread", id, "run", r.Run, "error", err)
	}
}

// leaves reports whether this host ends once it has no work. A run that waits for others does not keep it.
func (h *Host) leaves() bool {
	select {
	case <-h.closing:
		return true
	default:
		return false
	}
}

// launched records the result of a try, and returns how long the next one has to wait.
func (h *Host) launched(x *resuming, err error) (pause time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, x.held = errors.AsType[*Held](err)
	switch x.busy, x.done = false, err == nil; {
	case x.held:
		pause = heldPause
	case errors.Is(err, ErrBusy):
		pause = busyPause
	case err != nil:
		pause = min(leastPause<<min(x.tries, 10), mostPause)
		x.tries++
	}
	x.next = time.Now().Add(pause)
	return pause
}
