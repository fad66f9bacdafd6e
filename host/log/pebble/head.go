package pebble

import (
	"context"
	"errors"
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"arbe.0sk.ar/runner/host/log/engine"
)

// place is the cached head of a stream.
type place struct {
	mu      sync.Mutex // held during an append, commit included: the appends of a stream have one order
	loaded  bool
	head    engine.Head
	lookups int // since the stream last had no filter
}

// Head is read from memory for a stream in use.
func (e *Engine) Head(_ context.Context, stream string) (engine.Head, error) {
	at, unlock, err := e.lock(stream)
	if err != nil {
		return engine.Head{}, err
	}
	defer unlock()
	return at.head, nil
}

// lock locks the place of a stream, loaded, until unlock is called. So it waits for a running append to the stream.
func (e *Engine) lock(stream string) (at *place, unlock func(), err error) {
	if err := e.Failure(); err != nil { // a call that never returns may hold the lock
		return nil, nil, err
	}
	used := e.heads.Acquire(stream)
	at = &used.Value
	at.mu.Lock()
	unlock = func() {
		at.mu.Unlock()
		e.heads.Release(used)
	}
	if err := e.load(stream, at); err != nil {
		unlock()
		return nil, nil, err
	}
	return at, unlock, nil
}

// load reads the stream's head into at. The caller holds at.mu, so that no append is running: all that the store shows
// of the stream is on disk.
func (e *Engine) load(stream string, at *place) error {
	if err := e.Failure(); err != nil || at.loaded {
		return err
	}
	name := keyName(stream)
	head, err := e.last(name)
	if err != nil {
		return err
	}
	_, err = e.get(stateKey(name), func(v []byte) error {
		head.State = append([]byte{}, v...)
		return nil
	})
	if err != nil {
		return err
	}
	at.head, at.loaded = head, true
	return nil
}

// last returns the stream's head without its state.
func (e *Engine) last(name []byte) (head engine.Head, err error) {
	iter, err := e.iterate(recordKey(name, 0), recordKey(name, 1<<63))
	if err != nil {
		return head, err
	}
	if iter.Last() {
		head, err = headAt(iter)
		return head, errors.Join(err, iter.Close())
	}
	if err := errors.Join(iter.Error(), iter.Close()); err != nil {
		return head, err
	}
	_, err = e.get(textKey(kindGone, name, ""), func(v []byte) (err error) {
		head.Last, err = seqValue(v)
		return err
	})
	return head, err
}

// headAt returns the head of a stream from its last record, which iter is at.
func headAt(iter *pebbledb.Iterator) (engine.Head, error) {
	seq := keySeq(iter.Key())
	value, err := iter.ValueAndErr()
	if err != nil {
		return engine.Head{}, err
	}
	if data, control, err := controlValue(value); control {
		return engine.Head{Last: seq, Data: data}, err
	}
	return engine.Head{Last: seq, Data: seq}, nil
}

// Streams goes in the order of the store's keys.
func (e *Engine) Streams(ctx context.Context, f func(stream string, h engine.Head) error) error {
	if err := e.Failure(); err != nil {
		return err
	}
	iter, err := e.iterate([]byte{kindRecord}, []byte{kindRecord + 1})
	if err != nil {
		return err
	}
	for ok := iter.First(); ok && err == nil; {
		name := append([]byte{}, keyNameOf(iter.Key())...)
		next := textKey(kindRecord, name, "")
		next[len(next)-1]++ // after all keys of this stream
		var h engine.Head
		if h, err = e.Head(ctx, streamName(name)); err == nil && h.Exists() {
			err = f(streamName(name), h)
		}
		if err == nil {
			err = ctx.Err()
		}
		ok = err == nil && iter.SeekGE(next)
	}
	return errors.Join(err, iter.Error(), iter.Close())
}
