package cmdline

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// relayed is how many bytes wait for somebody to read them, at most.
const relayed = 256 << 10

// relay is a Writer that never makes its caller wait: what nobody reads is dropped.
type relay struct {
	to io.Writer

	mu      sync.Mutex
	waiting [][]byte
	size    int           // of those
	dropped int           // writes since the last one that was passed on
	more    chan struct{} // room for one: there is something
	closed  bool
}

// Relay returns a Writer that passes each write on to w as a whole, and never waits for w: a pipe that nobody reads
// or a terminal that is held takes up to 256 KiB, and what comes then is dropped and counted in a line of its own.
// flush waits until all is written, or for so long, and ends the relay; a write to w that still hangs then hangs
// until the process ends.
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

// Write takes b, or drops it.
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
	default: // it is awake
	}
}

// run passes on what comes until the relay is closed and empty.
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
			_, _ = r.to.Write(b) // nobody can be told that the log is gone
			r.mu.Lock()
			r.size -= len(b)
			r.mu.Unlock()
		}
	}
}

// next is what is to be written, nil for nothing. What was dropped is said where it would have been: after what waited.
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
