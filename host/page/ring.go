package page

import (
	"context"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/memory"
)

// Bounds of a ring.
const (
	ringBytes = 1 << 20         // of chunks; a larger one is dropped
	ringHolds = 2 * time.Second // a chunk, while the ring is full
)

// ring passes chunks from one writer to its members. Each member takes them in order, at its own pace, and the ring
// holds a chunk until the last one has taken it, so a ring whose members are all at its end holds nothing.
//
// A full ring makes its writer wait, until ringHolds after its oldest chunk was added. Then the members that have not
// taken that one miss it, and are not waited for until they take again. Members also miss a chunk that the budget has
// no room for. They see that by the place that they get next, and render alone up to it.
type ring struct {
	space chan struct{} // has a value when the ring has got room

	mu      sync.Mutex // guards the fields below
	members int        // but for those that miss chunks
	at      uint64     // place where the chunks end
	chunks  []*chunk   // each begins where the one before ends
	first   int        // number of the first of chunks
	size    int        // bytes of chunks
	held    int        // and of those dropped that a member still writes
	lease   *memory.Lease
	changed chan struct{} // closed by the next chunk, and at the end
	err     error         // why the ring has ended
}

// chunk has a thread's changes between two places, as server-sent events. Its data never changes.
type chunk struct {
	from, to uint64
	data     []byte

	// The ring guards these.
	since time.Time // when it was added
	due   int       // members that have not taken it; they are due the later ones, too
	uses  int       // by the ring, and by members that write it
}

// member is one who takes a ring's chunks.
type member struct {
	ring *ring
	next int // number of the next chunk
}

// newRing returns a ring at a place, which charges its chunks to the lease.
func newRing(at uint64, l *memory.Lease) *ring {
	return &ring{space: make(chan struct{}, 1), at: at, lease: l, changed: make(chan struct{})}
}

// join adds a member, which takes the chunks that are added from now on.
func (r *ring) join() *member {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members++
	return &member{r, r.first + len(r.chunks)}
}

// leave ends a member.
func (m *member) leave() {
	r := m.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.next < r.first {
		return // it missed chunks
	}
	for _, c := range r.chunks[m.next-r.first:] {
		c.due--
	}
	r.members--
	r.prune()
}

// take returns the member's next chunk, which the caller ends with done, and the place where it begins. Where there is
// none it returns nil, the place where the ring ends, and why the ring has ended, if it has. changed is closed once
// there is more to take.
func (m *member) take() (c *chunk, at uint64, changed <-chan struct{}, err error) {
	r := m.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.next < r.first {
		m.next = r.first + len(r.chunks)
		r.members++
	}
	i := m.next - r.first
	if i == len(r.chunks) {
		return nil, r.at, r.changed, r.err
	}
	c = r.chunks[i]
	m.next++
	c.uses++
	c.due--
	r.prune()
	return c, c.from, closed, nil
}

// closed is a channel that is closed.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// done ends the use of a chunk.
func (r *ring) done(c *chunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release(c)
}

// publish adds the chunk that ends at a place, once the ring has room for it. It returns ctx's error.
func (r *ring) publish(ctx context.Context, data []byte, to uint64) error {
	for {
		full, added := r.add(data, to, time.Now())
		if added {
			return nil
		}
		wait := time.NewTimer(full)
		select {
		case <-r.space:
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// add is publish, but returns false where the ring is full, and how long it will be at most.
func (r *ring) add(data []byte, to uint64, now time.Time) (full time.Duration, added bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.chunks) > 0 && r.size+len(data) > ringBytes && len(data) <= ringBytes {
		oldest := r.chunks[0]
		if full := ringHolds - now.Sub(oldest.since); full > 0 {
			return full, false
		}
		r.pass(oldest.due)
	}
	r.chunks = append(r.chunks, &chunk{from: r.at, to: to, data: data, since: now, due: r.members, uses: 1})
	r.size += len(data)
	r.held += len(data)
	r.at = to
	if len(data) > ringBytes || r.lease.Grow(len(data)) != nil {
		r.pass(r.members)
	}
	r.prune()
	r.wakeAll()
	return 0, true
}

// pass makes the n last members miss what they have not taken.
func (r *ring) pass(n int) {
	r.members -= n
	for _, c := range r.chunks {
		c.due = max(c.due-n, 0)
	}
	r.prune()
}

// wake wakes the members that wait for a change.
func (r *ring) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakeAll()
}

// wakeAll is wake with r.mu held.
func (r *ring) wakeAll() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// end ends the ring with an error. Members get it when they have taken all chunks.
func (r *ring) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	close(r.changed)
	r.changed = closed
}

// prune drops the chunks that are not due to a member. r.mu is held, as below.
func (r *ring) prune() {
	for len(r.chunks) > 0 && r.chunks[0].due == 0 {
		c := r.chunks[0]
		r.chunks[0] = nil
		r.chunks = r.chunks[1:]
		r.first++
		r.size -= len(c.data)
		r.release(c)
		select {
		case r.space <- struct{}{}:
		default: // it has one
		}
	}
}

// release ends one use of a chunk, and its charge with the last one.
func (r *ring) release(c *chunk) {
	if c.uses--; c.uses == 0 {
		r.held -= len(c.data)
		r.lease.Keep(r.held)
	}
}
