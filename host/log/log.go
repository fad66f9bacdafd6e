// Package log keeps streams of records with ids, those of threads among them, in an engine: appends, producers, forks,
// retention and quotas. It imports no net/http: a request that it refuses is an error of a type or value of errors.go.
//
// An append is durable when it returns, and readers see nothing that is not. A post of several entries is appended as a
// whole or not at all. An entry's id is taken for ever: posting it again with an equal payload changes nothing, with
// another payload it is a conflict. Several servers may have a log each on one cluster.
//
// The caller opens the engine and passes it to New; Close closes it.
package log

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// Log keeps streams, those of threads among them, in an engine. Its methods may be called at the same time. Close it
// when done.
type Log struct {
	// Quota is how many bytes one stream may hold, 0 for any. Each record counts with its key (recordCost). It must
	// not change while the log is in use.
	Quota int64

	// Observer receives what the log counts. It must not change while the log is in use.
	Observer Observer

	// Changed is called after each change of a stream by this server, and by others while Watch runs. The changes of a
	// stream by this server come in their order, before the call that made them returns. It must not block. It must
	// not change while the log is in use; nil for none.
	Changed func(c Change)

	engine Engine
	uses   uses

	installation atomic.Pointer[string] // cached; nil until it is read
	writable     writable

	streams *engine.Pool[live] // in use, and up to maxIdle others
	waits   sync.Mutex         // guards live.grown of all streams
}

// Change is a change of a stream. Of an append by this server it has the records; of other changes the name alone.
type Change struct {
	Stream string

	// Records are those of the append, in order. Their Seq and Key are not for the receiver, who may keep the Data and
	// must not change it.
	Records []engine.Record
	Before  uint64 // seq of the last record before the append: the offset there, in a stream that is no fork
	After   uint64 // seq of the last of Records
}

// live is a stream's state as this process caches it.
type live struct {
	grown chan struct{} // closed when the stream has changed; nil without a waiter. Guarded by Log.waits

	mu    sync.Mutex // held while this process changes the stream
	known bool
	head  engine.Head // cached. On a cluster another server may have appended since

	size    int64  // of its records, for the quota
	sizedAt uint64 // head.Last for which size is known
}

// maxIdle bounds the unused streams in the cache.
const maxIdle = 10_000

// New returns a log in an engine. Close closes the engine.
func New(e Engine) *Log {
	return &Log{
		Observer: unobserved{},
		engine:   e,
		streams:  engine.NewPool[live](maxIdle),
		writable: writable{since: time.Now()},
	}
}

// Engine returns the log's engine, for what only some engines can do.
func (l *Log) Engine() Engine { return l.engine }

// Close closes the engine. No other method may be running, or be called later.
func (l *Log) Close() error { return l.engine.Close() }

// maxAttempts bounds the conflicts of one append. At each of them another server has appended.
const maxAttempts = 200

// update changes a stream. decide returns what to append to a stream with this head, nil for nothing. It is called
// again after a conflict. Where it appends nothing or fails on a cached head, it is called again with one from the
// engine.
func (l *Log) update(
	ctx context.Context, name string, decide func(head engine.Head) (*engine.Append, error),
) (engine.Head, error) {
	used := l.streams.Acquire(name)
	defer l.streams.Release(used)
	s := &used.Value
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := false
	for range maxAttempts {
		if !s.known {
			head, err := l.engine.Head(ctx, name)
			if err != nil {
				return head, err
			}
			s.head, s.known, fresh = head, true, true
		}
		var size int64
		a, err := decide(s.head)
		if err == nil && a != nil {
			a.After = s.head.Last
			size, err = l.meter(ctx, name, s, a)
		}
		if err != nil || a == nil {
			if fresh {
				return s.head, err
			}
			s.known = false
			continue
		}
		began := time.Now()
		head, err := l.engine.Append(ctx, name, *a)
		l.writable.note(ctx, err, time.Since(began))
		if err == nil {
			if l.Quota > 0 && s.sizedAt == s.head.Last {
				s.size, s.sizedAt = size, head.Last
			}
			before := s.head.Data
			s.head = head
			l.wake(s)
			if l.Changed != nil {
				l.Changed(Change{Stream: name, Records: a.Records, Before: before, After: head.Data})
			}
			return head, nil
		}
		s.known = false
		if !errors.Is(err, engine.ErrConflict) {
			return head, err
		}
	}
	return engine.Head{}, fmt.Errorf("append to %s: %w, %d times", name, engine.ErrConflict, maxAttempts)
}

// Follower reads a stream and can wait for a change of it. Close it when done.
type Follower struct {
	log  *Log
	used *engine.Pooled[live]
	name string
}

// Follow returns a Follower of the stream with this name, which need not exist.
func (l *Log) Follow(name string) *Follower { return &Follower{l, l.streams.Acquire(name), name} }

// Close ends the use of the Follower.
func (f *Follower) Close() { f.log.streams.Release(f.used) }

// Stat returns the stream as it is now, or the errors of Log.Stat, and a channel that is closed once it has changed.
func (f *Follower) Stat(ctx context.Context) (Stream, <-chan struct{}, error) {
	s := &f.used.Value
	f.log.waits.Lock()
	if s.grown == nil {
		s.grown = make(chan struct{})
	}
	grown := s.grown // before Stat: a change after it closes this one
	f.log.waits.Unlock()
	v, err := f.log.Stat(ctx, f.name)
	return v, grown, err
}

// changed wakes those who wait for a change of a stream, and calls Changed.
func (l *Log) changed(name string) {
	if deleted, is := announced(name); is {
		name = deleted
	}
	if l.Changed != nil {
		l.Changed(Change{Stream: name})
	}
	if used := l.streams.Peek(name); used != nil {
		l.wake(&used.Value)
	}
}

// wake is changed for a stream in the cache.
func (l *Log) wake(s *live) {
	l.waits.Lock()
	defer l.waits.Unlock()
	if s.grown != nil {
		close(s.grown)
		s.grown = nil
	}
}

// Appended is the result of an append.
type Appended struct {
	Next       uint64 // offset of the stream's end
	Appended   int
	Duplicates int // existed before
}

// Append appends entries to a thread, in order, all or none, and returns when they are durable. An entry that exists
// with an equal payload is counted as a duplicate. It returns ErrGone, a *QuotaError, or a *ConflictError with the
// entries whose ids are taken, and has appended nothing then. After another error it may have.
func (l *Log) Append(ctx context.Context, threadID string, entries []thread.Entry) (Appended, error) {
	name := thread.StreamName(threadID)
	var res Appended
	began, size := time.Now(), 0
	head, err := l.update(ctx, name, func(head engine.Head) (*engine.Append, error) {
		res = Appended{}
		v, err := newStream(name, head)
		switch {
		case err != nil:
			return nil, err
		case v.Gone:
			return nil, ErrGone
		}
		a, passing := &engine.Append{State: head.State}, v.Passing
		err = l.addEntries(ctx, &v, a, entries, &res)
		if err != nil || len(a.Records) == 0 {
			return nil, err
		}
		if v.Passing != passing {
			a.State = v.state()
		}
		size = sizeOf(a.Records)
		return a, nil
	})
	var conflict *ConflictError
	switch {
	case err == nil:
		l.Observer.Appended(res.Appended, res.Duplicates, size, time.Since(began))
	case errors.As(err, &conflict):
		l.Observer.Conflicted(len(conflict.Entries))
	}
	res.Next = head.Data
	return res, err
}

// ReceivedAt returns when the log received the thread's entry with this id; false where there is none.
func (l *Log) ReceivedAt(ctx context.Context, threadID, id string) (time.Time, bool, error) {
	v, err := l.Stat(ctx, thread.StreamName(threadID))
	if errors.Is(err, ErrAbsent) || errors.Is(err, ErrGone) {
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, false, err
	}
	r, ok, err := l.Entry(ctx, v, id)
	return r.At, ok, err
}

// Threads calls f for each thread with the offset of its last entry. It stops at f's first error and returns it.
func (l *Log) Threads(ctx context.Context, f func(id string, last uint64) error) error {
	return l.engine.Streams(ctx, func(name string, h engine.Head) error {
		if id, ok := thread.OfStream(name); ok && h.Data > 0 {
			return f(id, h.Data)
		}
		return nil
	})
}
