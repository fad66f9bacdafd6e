package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/host/log/engine"
)

// filterAfter is how many keys of a stream are looked up before the stream gets a filter of its keys.
const filterAfter = 8

// Lookup rarely reads the disk for a key that is new. It waits for a running append to the same stream, and does not
// find the records of an append that begins later.
func (e *Engine) Lookup(_ context.Context, stream, key string) (r engine.Record, ok bool, err error) {
	name := keyName(stream)
	may, last, err := e.mayHave(stream, name, key)
	if err != nil || !may {
		return engine.Record{}, false, err
	}
	var seq uint64
	found, err := e.get(textKey(kindKey, name, key), func(v []byte) (err error) {
		seq, err = seqValue(v)
		return err
	})
	if err != nil {
		return engine.Record{}, false, fmt.Errorf("look up %.80q in the log: %w", key, err)
	}
	if !found || seq > last { // it may not be on disk
		return engine.Record{}, false, nil
	}
	r.Seq = seq // it stays without data where it was removed
	_, err = e.get(recordKey(name, seq), func(v []byte) (err error) {
		r, _, err = parseRecord(seq, v)
		r.Data = bytes.Clone(r.Data)
		return err
	})
	r.Key = key
	return r, err == nil, err
}

// mayHave reports whether a stream may have a key, and the seq up to which the stream is on disk.
func (e *Engine) mayHave(stream string, name []byte, key string) (may bool, last uint64, err error) {
	at, unlock, err := e.lock(stream)
	if err != nil {
		return false, 0, err
	}
	defer unlock()
	hash := keyHash([]byte(key))
	if keys, ok := e.filters.Get(stream); ok {
		return keys.has(hash), at.head.Last, nil
	}
	if at.lookups++; at.lookups < filterAfter {
		return true, at.head.Last, nil
	}
	keys, err := e.readKeys(name)
	if err != nil {
		return false, 0, err
	}
	at.lookups = 0
	e.filters.set(stream, keys)
	return keys.has(hash), at.head.Last, nil
}

// readKeys reads all keys of a stream into a filter.
func (e *Engine) readKeys(name []byte) (*keySet, error) {
	iter, err := e.iterate(textKey(kindKey, name, ""), textKey(kindKey, name, "\xff"))
	if err != nil {
		return nil, err
	}
	keys := &keySet{}
	for ok := iter.First(); ok; ok = iter.Next() {
		keys.add(keyHash(iter.Key()[len(name)+2:]))
	}
	return keys, errors.Join(iter.Error(), iter.Close())
}

// Value is one look-up. It waits for a running append to the same stream, whose values may not be on disk yet.
func (e *Engine) Value(_ context.Context, stream, name string) (value []byte, err error) {
	_, unlock, err := e.lock(stream)
	if err != nil {
		return nil, err
	}
	defer unlock()
	_, err = e.get(textKey(kindValue, keyName(stream), name), func(v []byte) error {
		value = append([]byte{}, v...)
		return nil
	})
	return value, err
}

// Values is one scan. It waits for a running append to the same stream, whose values may not be on disk yet.
func (e *Engine) Values(_ context.Context, stream, prefix string) (map[string][]byte, error) {
	_, unlock, err := e.lock(stream)
	if err != nil {
		return nil, err
	}
	defer unlock()
	name := keyName(stream)
	from := textKey(kindValue, name, prefix)
	cut := len(from) - len(prefix)
	iter, err := e.iterate(from, textKey(kindValue, name, prefix+"\xff\xff"))
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
