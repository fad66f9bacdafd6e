package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Why a command is ended before its end.
var (
	errTimedOut = errors.New("timed out")
	errStopped  = errors.New("stopped")
)

// lingering is how long a command's output is waited for when the command has ended and something that it left behind holds on to it. Then what is left is
// killed: what shall outlive an Exec is for Detach.
const lingering = 500 * time.Millisecond

// running are the commands that a box's Exec is at.
type running struct {
	mu   sync.Mutex
	next int
	stop map[int]context.CancelCauseFunc
}

// begin is a context that ends with ctx, with Stop, or at the time limit, with the cause. limit starts the clock,
// when the command has started. end must be called.
func (r *running) begin(ctx context.Context) (run context.Context, limit func(time.Duration), end func()) {
	run, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	limit = func(d time.Duration) {
		if d <= 0 {
			d = DefaultTimeout
		}
		timer = time.AfterFunc(d, func() { cancel(errTimedOut) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop == nil {
		r.stop = map[int]context.CancelCauseFunc{}
	}
	r.next++
	id := r.next
	r.stop[id] = cancel
	return run, limit, func() {
		r.mu.Lock()
		delete(r.stop, id)
		r.mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
		cancel(nil)
	}
}

// Stop ends what Exec is running.
func (r *running) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cancel := range r.stop {
		cancel(errStopped)
	}
}

// cutShort is what is said of a command that was ended for a cause: a time limit and Stop are ways to end, all else is an error.
func (r *Result) cutShort(cause error) error {
	r.ExitCode = -1
	r.TimedOut = errors.Is(cause, errTimedOut)
	if r.TimedOut || errors.Is(cause, errStopped) {
		return nil
	}
	return cause
}
