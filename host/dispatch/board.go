package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Errors of a Thread.
var (
	ErrTaken   = errors.New("the id is taken")       // by an entry with another payload
	ErrGone    = errors.New("the thread is deleted") // its id is not given again
	ErrRefused = errors.New("the thread refuses the entry")
)

// Thread is a thread of the log. It repeats what fails for a moment; an error ends the work on the thread, which any
// host continues later.
type Thread interface {
	// Read calls f for the entries behind an offset, in their order, with or without deltas. It returns the offset
	// behind the last one, and the server's time.
	Read(ctx context.Context, from string, f func(thread.Entry)) (next string, now time.Time, err error)
	// Append appends all entries or none. It returns ErrTaken, ErrGone and ErrRefused. An entry that is there already
	// is no error.
	Append(ctx context.Context, entries ...thread.Entry) error
}

// board has what a host has read of a thread. Its methods may be called at the same time.
type board struct {
	thread  Thread
	reading chan struct{} // has one element while somebody reads

	mu    sync.Mutex
	state *State
	notes *notes
	next  string
	now   time.Time // of the server, at the read
	read  time.Time // of this machine, at the read
}

// newBoard returns the board of a thread of which nothing is read yet.
func newBoard(t Thread, id string, since time.Time, r Room) *board {
	return &board{
		thread: t, reading: make(chan struct{}, 1), state: NewState(id, since), notes: newNotes(r.human), next: "0",
	}
}

// sync reads what has come since.
func (b *board) sync(ctx context.Context) error {
	select {
	case b.reading <- struct{}{}:
		defer func() { <-b.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var fresh []thread.Entry
	take := func(e thread.Entry) { fresh = append(fresh, e) }
	if b.next == "0" { // a whole thread may be large. Where this fails the board is not used
		take = b.add
	}
	next, now, err := b.thread.Read(ctx, b.next, take)
	if err != nil {
		return err
	}
	for _, e := range fresh {
		b.add(e)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// The server's clock may come in whole seconds: what has passed here since is better, unless it is far off.
	if mine := b.now.Add(time.Since(b.read)); !mine.After(now) || mine.Sub(now) > mostAhead {
		b.now, b.read = now, time.Now()
	}
	b.next = next
	return nil
}

func (b *board) add(e thread.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Add(e)
	b.notes.add(e, b.state)
}

// mostAhead is how far this machine's reckoning of the server's time may be ahead of it.
const mostAhead = 2 * time.Second

// time returns the server's time: that of the last read, and what has passed here since.
func (b *board) time() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now.Add(time.Since(b.read))
}

// see calls f with the state, which f must not keep.
func (b *board) see(f func(*State)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b.state)
}

// journal returns a copy of an open reaction's journal, and the thread's notes; ok is false where it has ended.
func (b *board) journal(id string) (j Journal, all notes, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if open := b.state.Reaction(id); open != nil {
		return *open, b.notes.all(), true
	}
	return j, all, false
}

// append appends entries, and reads what the thread has then. It reports whether they are there.
func (b *board) append(ctx context.Context, entries ...thread.Entry) (bool, error) {
	stamp := thread.Stamp(b.time())
	for i := range entries {
		entries[i].TS = stamp
	}
	err := b.thread.Append(ctx, entries...)
	if err != nil && !errors.Is(err, ErrTaken) {
		return false, err
	}
	return err == nil, b.sync(ctx)
}

// entry returns an entry of a host.
func entry(id, author string, payload any) thread.Entry {
	return thread.Entry{ID: id, AuthorID: author, Payload: thread.Marshal(payload)}
}
