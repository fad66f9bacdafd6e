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
	if err := e.Failure(); err != nil {
		return engine.Head{}, err
	}
	used := e.heads.Acquire(stream)
	defer e.heads.Release(used)
	at := &used.Value
	at.mu.Lock()
	defer at.mu.Unlock()
	err := e.load(stream, at)
	return at.head, err
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
	err = e.get(stateKey(name), func(v []byte) error {
		head.State = append([]byte{}, v...)
		return nil
	})
	if err != nil && !errors.Is(err, pebbledb.ErrNotFound) {
		return err
	}
	at.head, at.loaded = head, true
	return nil
}

// last returns the stream's head without its state.
func (e *Engine) last(name []byte) (head engine.Head, err error) {
	iter, err := e.db.NewIter(&pebbledb.IterOptions{LowerBound: recordKey(name, 0), UpperBound: recordKey(name, 1<<63)})
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
	err = e.get(textKey(kindGone, name, ""), func(v []byte) (err error) {
		head.Last, err = seqValue(v)
		return err
	})
	if errors.Is(err, pebbledb.ErrNotFound) {
		err = nil
	}
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
