package kit

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
)

// Reasons to end a command early.
var (
	errTimedOut = errors.New("timed out")
	errStopped  = errors.New("stopped")
)

// OutputGrace is the wait for a command's output after its end if a process that it left behind keeps the output open.
// That process is then killed: processes that outlive the command are for Detach.
const OutputGrace = 500 * time.Millisecond

// Running is the set of commands that Exec runs in a box at the moment.
type Running struct {
	mu   sync.Mutex
	next int
	stop map[int]context.CancelCauseFunc
}

// Begin returns a context that ends with ctx, by Stop, or at the time limit, with the cause. limit starts the time
// limit when the command has started. end must be called.
func (r *Running) Begin(ctx context.Context) (run context.Context, limit func(time.Duration), end func()) {
	run, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	limit = func(d time.Duration) {
		timer = time.AfterFunc(cmp.Or(d, sandbox.DefaultTimeout), func() { cancel(errTimedOut) })
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

// Stop ends the commands that Exec runs, here and in the box. Detached processes keep running.
func (r *Running) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cancel := range r.stop {
		cancel(errStopped)
	}
}

// CutShort completes the result of a command that was ended early. A time limit and Stop are no errors; any other cause
// is returned.
func CutShort(r *sandbox.Result, cause error) error {
	r.ExitCode = -1
	r.TimedOut = errors.Is(cause, errTimedOut)
	if r.TimedOut || errors.Is(cause, errStopped) {
		return nil
	}
	return cause
}
