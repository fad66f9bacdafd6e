package thread

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Waits of Follow where the server can't be asked to wait, or is away.
const (
	quickPoll = time.Second
	slowPoll  = 15 * time.Second
)

// ErrStop is what f returns to end a Follow, which then returns nil.
var ErrStop = errors.New("stop following")

// ErrRewound ends a Follow whose offset the server refuses: the thread ends before it, as after a restore from a
// backup. What was passed on may no longer be there, and what comes has to be read from the start.
var ErrRewound = errors.New("the thread ends before the place that was read up to: it was restored to an earlier state")

// Follow passes the thread's entries from offset on to f as they come. It asks the server to wait for them, and polls
// one that doesn't. It waits for a thread that nobody has written yet and for a server that is away, and ends when f
// returns an error, when the server refuses the token or the request, with ErrRewound, or when ctx is done (nil). tail,
// where there is one, is asked each time when all that is there has been passed, and ends it, too.
func (c *Client) Follow(ctx context.Context, offset string, f func(Entry) error, tail func() bool) error {
	seen := map[string]bool{} // of the read under way: an older server, which knows no offsets, gives them again
	live, doubt := !c.polled.Load(), false
	away := quickPoll // between two tries of a server that is away
	for ctx.Err() == nil {
		began := time.Now()
		var own error
		page, err := c.Read(ctx, offset, live, func(e Entry) error {
			if seen[e.ID] {
				return nil
			}
			seen[e.ID] = true
			own = f(e)
			return own
		})
		took := time.Since(began)
		switch {
		case errors.Is(own, ErrStop):
			return nil
		case own != nil:
			return own
		case NotFound(err): // never written
			if tail != nil && tail() {
				return nil
			}
			pause(ctx, quickPoll)
			continue
		case live && unwaited(err):
			live, doubt = false, true // whether it was that the next read shows
			continue
		case statusOf(err) == http.StatusBadRequest && offset != "0":
			return ErrRewound
		case err != nil && final(err):
			return err
		case err != nil:
			pause(ctx, away)
			away = min(2*away, slowPoll)
			continue
		case tail != nil && tail():
			return nil
		}
		away = quickPoll
		if doubt && !c.polled.Swap(true) {
			c.log().Info("the thread server can't be asked to wait for entries; polling it")
		}
		switch page.Next {
		case "": // all is read again each time: the longer that takes, the less often
			pause(ctx, min(max(quickPoll, 10*took), slowPoll))
		case offset:
			pause(ctx, quickPoll-took) // after a server that has waited this is no pause at all
		default:
			clear(seen)
			offset = page.Next
		}
	}
	return nil
}

// unwaited reports whether err may be the answer of a server that can't be asked to wait.
func unwaited(err error) bool {
	switch statusOf(err) {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return true
	}
	return false
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
