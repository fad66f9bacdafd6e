// Package memory bounds the bytes that the requests of a process hold at the same time, and finds the limit of memory
// that the process has. It needs no HTTP: a server gives ErrBusy and ErrShare their statuses.
package memory

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Errors of a charge beyond the budget. The request may come again later.
var (
	ErrBusy  = errors.New("the server holds as much as its memory allows: try again later")
	ErrShare = errors.New("this token's requests hold their share of the server's memory: try again later")
)

// Budget bounds the bytes that all requests of the process hold at the same time.
//
// A request is charged for its body, three times its size as it is read (the body, the form it is stored in, the batch
// that is written), and for the records that are read for an answer, with the buffer that they are written through. The
// charge ends with the append, or when a piece of the answer is written. A reader that waits for a change is charged
// nothing. Not charged are the buffers of a connection (4 KiB; the limit on connections bounds them), what the engine
// keeps (its options bound it), and what a few reads of the engine return until their size is known (maxReads).
//
// Small requests (smallCharge) have a part of the budget of their own, so that an append of one line gets through while
// large ones hold the rest. One holder (a token's identity) may hold a quarter of a part, but always one request of any
// allowed size. One request is charged three quarters of a part at most. A request beyond the budget gets ErrBusy, one
// beyond its holder's share ErrShare. A request without a charge waits for room, in order, budgetWait at most. One with
// a charge is refused at once, so that two of them never wait for each other.
//
// Large bodies also take turns at half of the processors, since checking one takes a tenth of a second.
type Budget struct {
	size  int64
	parts [2]part       // small, large
	reads chan struct{} // has a value for each read of the engine that is running
	heavy chan struct{} // has a value for each large body that is being checked or appended

	charged atomic.Int64

	mu      sync.Mutex
	holders map[string]*holder
}

// part is the small or the large part of the budget.
type part struct {
	size int64
	room *semaphore.Weighted
}

const (
	small = 0
	large = 1

	smallCharge = 256 << 10 // the largest charge of a small request
	BodyCharge  = 3         // times the bytes of a body
	leastBudget = 16 << 20
	budgetWait  = 2 * time.Second
	turnWait    = 30 * time.Second
)

// holder counts the leases and the bytes that the requests of one token hold.
type holder struct {
	leases int
	held   [2]int64 // in each part
}

// NewBudget returns a budget of size bytes, leastBudget at least.
func NewBudget(size int64) *Budget {
	size = max(size, leastBudget)
	b := &Budget{
		size: size, holders: map[string]*holder{},
		reads: make(chan struct{}, maxReads()), heavy: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
	}
	for i, n := range [2]int64{size / 8, size - size/8} {
		b.parts[i] = part{n, semaphore.NewWeighted(n)}
	}
	return b
}

// maxReads returns how many reads of the engine may run at the same time.
func maxReads() int { return 4 + 2*runtime.GOMAXPROCS(0) }

// Size returns how many bytes all requests may hold.
func (b *Budget) Size() int64 { return b.size }

// Held returns how many bytes are charged.
func (b *Budget) Held() int64 { return b.charged.Load() }

// Lease is the charge of one request. One goroutine uses it. Call Free when the request has ended.
type Lease struct {
	b      *Budget
	who    string
	holder *holder
	part   int   // with the charge
	n      int64 // charged
	want   int64 // asked for; more than n where that is the most for one request
	heavy  bool  // it has a turn
}

// Lease returns a lease of who, without a charge.
func (b *Budget) Lease(who string) *Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.holders[who]
	if h == nil {
		h = &holder{}
		b.holders[who] = h
	}
	h.leases++
	return &Lease{b: b, who: who, holder: h}
}

// Free ends the lease and its charge.
func (l *Lease) Free() {
	l.Drop()
	if l.heavy {
		<-l.b.heavy
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.holder.leases--; l.holder.leases == 0 {
		delete(l.b.holders, l.who)
	}
}

// Turn waits for a turn of a large body, which lasts until Free. For a small one it returns at once.
func (l *Lease) Turn(ctx context.Context) error {
	if l.part == small {
		return nil
	}
	wait := time.NewTimer(turnWait)
	defer wait.Stop()
	select {
	case l.b.heavy <- struct{}{}:
		l.heavy = true
		return nil
	case <-wait.C:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Drop ends the charge. The lease can be charged again.
func (l *Lease) Drop() {
	l.Keep(0)
	l.part = small
}

// Grow charges n bytes more, or returns ErrBusy or ErrShare at once.
func (l *Lease) Grow(n int) error { return l.charge(int64(n), (*semaphore.Weighted).TryAcquire) }

// wait is Grow for a lease without a charge: it waits for room.
func (l *Lease) wait(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, budgetWait)
	defer cancel()
	return l.charge(int64(n), func(room *semaphore.Weighted, n int64) bool { return room.Acquire(ctx, n) == nil })
}

func (l *Lease) charge(n int64, acquire func(*semaphore.Weighted, int64) bool) error {
	want, to := l.want+n, small
	if want > min(smallCharge, l.b.parts[small].size/4) {
		to = large
	}
	total := min(want, l.b.parts[to].size*3/4)
	more := total // to acquire of the part
	if to == l.part {
		more -= l.n
	}
	if !l.reserve(to, more) {
		return ErrShare
	}
	if !acquire(l.b.parts[to].room, more) {
		l.unreserve(to, more)
		return ErrBusy
	}
	if to != l.part && l.n > 0 {
		l.b.parts[l.part].room.Release(l.n)
		l.unreserve(l.part, l.n)
	}
	l.b.charged.Add(total - l.n)
	l.part, l.n, l.want = to, total, want
	return nil
}

// reserve counts n bytes of a part for the holder; false where they exceed its share.
func (l *Lease) reserve(to int, n int64) bool {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	h := l.holder
	others := h.held[small] + h.held[large] - l.n
	if others > 0 && h.held[to]+n > l.b.parts[to].size/4 {
		return false
	}
	h.held[to] += n
	return true
}

func (l *Lease) unreserve(to int, n int64) {
	l.b.mu.Lock()
	l.holder.held[to] -= n
	l.b.mu.Unlock()
}

// Records is a read of the engine within the budget. It charges the lease with the result, until Drop or Keep.
func (l *Lease) Records(ctx context.Context, from func() ([]engine.Record, error)) ([]engine.Record, error) {
	read := func() (records []engine.Record, n int, err error) {
		records, err = from()
		return records, RecordBytes(records), err
	}
	select {
	case l.b.reads <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	records, n, err := read()
	if err == nil {
		err = l.Grow(n)
	}
	<-l.b.reads
	if !errors.Is(err, ErrBusy) || l.n > 0 {
		return records, err
	}
	// The records are dropped while the lease waits for room.
	if err := l.wait(ctx, n); err != nil {
		return nil, err
	}
	records, again, err := read()
	if err == nil && again > n {
		err = l.Grow(again - n)
	}
	return records, err
}

// Keep lowers the charge to n bytes.
func (l *Lease) Keep(n int) {
	less := l.n - int64(n)
	if less <= 0 {
		return
	}
	l.b.charged.Add(-less)
	l.unreserve(l.part, less)
	l.b.parts[l.part].room.Release(less)
	l.n, l.want = int64(n), int64(n)
}

// RecordBytes returns how much memory records take.
func RecordBytes(records []engine.Record) int {
	n := 0
	for i := range records {
		n += len(records[i].Data) + 96
	}
	return n
}
