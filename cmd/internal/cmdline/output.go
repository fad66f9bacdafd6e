package cmdline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// StatusOutput is the exit status of a program whose output could not be written (EX_IOERR).
const StatusOutput = 74

// Output is a program's stdout. It remembers the first write that failed, so that a command that checks none of its
// writes still fails: Run turns its exit status 0 into StatusOutput. A pipe that nobody reads any more is no failure.
// It is safe for concurrent use.
type Output struct {
	to io.Writer

	mu     sync.Mutex
	failed error
}

// NewOutput returns the Output that writes to w.
func NewOutput(w io.Writer) *Output { return &Output{to: w} }

func (o *Output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		o.mu.Lock()
		if o.failed == nil {
			o.failed = err
		}
		o.mu.Unlock()
	}
	return n, err
}

// Fd returns the file descriptor, for what asks whether it is a terminal.
func (o *Output) Fd() uintptr {
	if f, is := o.to.(*os.File); is {
		return f.Fd()
	}
	return ^uintptr(0)
}

// checked returns the error of a command, or that of its output where it failed by that alone.
func (o *Output) checked(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil || err != nil && !errors.Is(err, o.failed) {
		return err
	}
	cause := o.failed
	if path, is := errors.AsType[*os.PathError](cause); is {
		cause = path.Err // its name of the file is Go's
	}
	return &Exit{StatusOutput, fmt.Errorf("write stdout: %w", cause)}
}

// relayed bounds the bytes that wait for the reader.
const relayed = 256 << 10

// relay is a Writer that never blocks: it drops writes that the reader does not take.
type relay struct {
	to io.Writer

	mu      sync.Mutex
	waiting [][]byte
	size    int           // of those
	dropped int           // writes since the last one that was kept
	more    chan struct{} // capacity 1: there is something to write
	closed  bool
}

// Relay returns a Writer that copies each write to w as a whole and never waits for w. Up to 256 KiB wait for a pipe
// that nobody reads or a terminal that is held; further writes are dropped and counted in a line of their own. flush
// waits until everything is written, at most for the given time, and ends the relay. A write to w that hangs then
// hangs until the process ends.
func Relay(w io.Writer) (log io.Writer, flush func(time.Duration)) {
	r := &relay{to: w, more: make(chan struct{}, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run()
	}()
	return r, func(d time.Duration) {
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		r.wake()
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		}
	}
}

// Write keeps b for w, or drops it.
func (r *relay) Write(b []byte) (int, error) {
	r.mu.Lock()
	if r.size+len(b) > relayed || r.closed {
		r.dropped++
	} else {
		r.size += len(b)
		r.waiting = append(r.waiting, append([]byte(nil), b...))
	}
	r.mu.Unlock()
	r.wake()
	return len(b), nil
}

func (r *relay) wake() {
	select {
	case r.more <- struct{}{}:
	default: // run is awake
	}
}

// run copies writes to the reader until the relay is closed and empty.
func (r *relay) run() {
	for range r.more {
		for {
			b, closed := r.next()
			if b == nil && closed {
				return
			}
			if b == nil {
				break
			}
			_, _ = r.to.Write(b) // there is nowhere to report that the log is gone
			r.mu.Lock()
			r.size -= len(b)
			r.mu.Unlock()
		}
	}
}

// next returns the bytes to write next, nil for none. The line about dropped writes stands where they would have been:
// after those that waited.
func (r *relay) next() (b []byte, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case len(r.waiting) > 0:
		b, r.waiting = r.waiting[0], r.waiting[1:]
	case r.dropped > 0:
		b = fmt.Appendf(nil, "… %d log lines dropped: nobody read them\n", r.dropped)
		r.size += len(b)
		r.dropped = 0
	}
	return b, r.closed
}
