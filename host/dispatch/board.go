package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// ErrTaken is a Thread's error for an append of which an id is taken by an entry with another payload.
var ErrTaken = errors.New("the id is taken")

// Thread is a thread of the log. It repeats what fails for a moment; an error ends the work on the thread, which any
// host continues later.
type Thread interface {
	// Read calls f for the entries behind an offset, in their order, with or without deltas. It returns the offset
	// behind the last one, and the server's time.
	Read(ctx context.Context, from string, f func(thread.Entry)) (next string, now time.Time, err error)
	// Append appends all entries or none. It returns ErrTaken; an entry that is there already is no error.
	Append(ctx context.Context, entries ...thread.Entry) error
}

// board has what a host has read of a thread. Its methods may be called at the same time.
type board struct {
	thread  Thread
	reading chan struct{} // has one element while somebody reads

	mu      sync.Mutex
	state   *State
	entries []thread.Entry
	next    string
	now     time.Time // of the server, at the read
	read    time.Time // of this machine, at the read
}

// newBoard returns the board of a thread of which nothing is read yet.
func newBoard(t Thread, id string, since time.Time) *board {
	return &board{thread: t, reading: make(chan struct{}, 1), state: NewState(id, since), next: "0"}
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
	next, now, err := b.thread.Read(ctx, b.next, func(e thread.Entry) { fresh = append(fresh, e) })
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range fresh {
		b.state.Add(e)
	}
	b.entries = append(b.entries, fresh...)
	b.next, b.now, b.read = next, now, time.Now()
	return nil
}

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

// journal returns a copy of an open reaction's journal, and the thread's entries; ok is false where it has ended.
func (b *board) journal(id string) (j Journal, all []thread.Entry, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if open := b.state.Reaction(id); open != nil {
		return *open, b.entries[:len(b.entries):len(b.entries)], true
	}
	return j, nil, false
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
