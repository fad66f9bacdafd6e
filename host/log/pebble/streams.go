package pebble

import (
	"context"
	"errors"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Streams goes in the order of the store's keys.
func (e *Engine) Streams(ctx context.Context, f func(stream string, h engine.Head) error) error {
	if err := e.Failure(); err != nil {
		return err
	}
	iter, err := e.db.NewIter(&pebbledb.IterOptions{LowerBound: []byte{kindRecord}, UpperBound: []byte{kindRecord + 1}})
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
