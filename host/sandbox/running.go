package sandbox

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// Reasons to end a command early.
var (
	errTimedOut = errors.New("timed out")
	errStopped  = errors.New("stopped")
)

// outputGrace is the wait for a command's output after its end if a process that it left behind keeps the output open.
// That process is then killed: processes that outlive the command are for Detach.
const outputGrace = 500 * time.Millisecond

// running is the set of commands that Exec runs in a box at the moment.
type running struct {
	mu   sync.Mutex
	next int
	stop map[int]context.CancelCauseFunc
}

// begin returns a context that ends with ctx, by Stop, or at the time limit, with the cause. limit starts the time
// limit when the command has started. end must be called.
func (r *running) begin(ctx context.Context) (run context.Context, limit func(time.Duration), end func()) {
	run, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	limit = func(d time.Duration) {
		timer = time.AfterFunc(cmp.Or(d, DefaultTimeout), func() { cancel(errTimedOut) })
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
func (r *running) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cancel := range r.stop {
		cancel(errStopped)
	}
}

// cutShort completes the result of a command that was ended early. A time limit and Stop are no errors; any other cause
// is returned.
func (r *Result) cutShort(cause error) error {
	r.ExitCode = -1
	r.TimedOut = errors.Is(cause, errTimedOut)
	if r.TimedOut || errors.Is(cause, errStopped) {
		return nil
	}
	return cause
}

// output keeps a command's output up to a limit and passes it to the caller.
type output struct {
	limit int
	pass  func(Stream, []byte) // nil where the caller wants no output

	mu   sync.Mutex // one call of pass at a time
	kept [2][]byte
	cut  bool
}

func newOutput(c Command) *output {
	return &output{limit: cmp.Or(c.MaxOutput, DefaultMaxOutput), pass: c.Output}
}

func (o *output) add(s Stream, b []byte) {
	if len(b) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := &o.kept[s-Stdout]
	room := min(o.limit-len(*kept), len(b))
	*kept = append(*kept, b[:room]...)
	o.cut = o.cut || room < len(b)
	if o.pass != nil {
		o.pass(s, b)
	}
}

// fill copies the output into r.
func (o *output) fill(r *Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.Stdout, r.Stderr, r.Truncated = o.kept[0], o.kept[1], o.cut
}
