package cmdline

import (
	"fmt"
	"io"
	"sync"
	"time"
)

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
