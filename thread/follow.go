package thread

import (
	"context"
	"errors"
	"time"
)

// Waits of Follow where the server can't be asked to wait, or is away.
const (
	quickPoll = time.Second
	slowPoll  = 15 * time.Second
)

// ErrStop is what f returns to end a Follow, which then returns nil.
var ErrStop = errors.New("stop following")

// Follow passes the thread's entries from offset on to f as they come. It asks the server to wait for them, and polls one that doesn't. It waits for a
// thread that nobody has written yet and for a server that is away, and ends when f returns an error, when the token is refused, or when ctx is done
// (nil). tail, where there is one, is asked each time when all that is there has been passed, and ends it, too.
func (c *Client) Follow(ctx context.Context, offset string, f func(Entry) error, tail func() bool) error {
	seen := map[string]bool{} // of the read under way: one that breaks off, or an older server that knows no offsets, gives them again
	for ctx.Err() == nil {
		began := time.Now()
		var own error
		page, err := c.Read(ctx, offset, true, func(e Entry) error {
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
		case own != nil || Refused(err):
			return err
		case err != nil && !NotFound(err):
			pause(ctx, quickPoll)
			continue
		case tail != nil && tail():
			return nil
		case err != nil: // never written
			pause(ctx, quickPoll)
			continue
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

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
