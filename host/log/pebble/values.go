package pebble

import (
	"context"
	"errors"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// Value is one look-up. It waits for a running append to the same stream, whose values may not be on disk yet.
func (e *Engine) Value(_ context.Context, stream, name string) (value []byte, err error) {
	if err := e.Failure(); err != nil {
		return nil, err
	}
	used := e.heads.Acquire(stream)
	defer e.heads.Release(used)
	at := &used.Value
	at.mu.Lock()
	defer at.mu.Unlock()
	err = e.get(textKey(kindValue, keyName(stream), name), func(v []byte) error {
		value = append([]byte{}, v...)
		return nil
	})
	if errors.Is(err, pebbledb.ErrNotFound) {
		err = nil
	}
	return value, err
}

// Values is one scan. It waits for a running append to the same stream, whose values may not be on disk yet.
func (e *Engine) Values(_ context.Context, stream, prefix string) (map[string][]byte, error) {
	if err := e.Failure(); err != nil {
		return nil, err
	}
	used := e.heads.Acquire(stream)
	defer e.heads.Release(used)
	at := &used.Value
	at.mu.Lock()
	defer at.mu.Unlock()
	name := keyName(stream)
	from := textKey(kindValue, name, prefix)
	cut := len(from) - len(prefix)
	iter, err := e.db.NewIter(&pebbledb.IterOptions{
		LowerBound: from, UpperBound: textKey(kindValue, name, prefix+"\xff\xff"),
	})
	if err != nil {
		return nil, err
	}
	values := map[string][]byte{}
	for ok := iter.First(); ok; ok = iter.Next() {
		v, err := iter.ValueAndErr()
		if err != nil {
			return nil, errors.Join(err, iter.Close())
		}
		values[string(iter.Key()[cut:])] = append([]byte{}, v...)
	}
	return values, errors.Join(iter.Error(), iter.Close())
}
