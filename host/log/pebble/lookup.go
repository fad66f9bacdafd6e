package pebble

import (
	"context"
	"errors"
	"fmt"

	pebbledb "github.com/cockroachdb/pebble/v2"

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
	err = e.get(textKey(kindKey, name, key), func(v []byte) (err error) {
		seq, err = seqValue(v)
		return err
	})
	if errors.Is(err, pebbledb.ErrNotFound) {
		return engine.Record{}, false, nil
	}
	if err != nil {
		return engine.Record{}, false, fmt.Errorf("look up %.80q in the log: %w", key, err)
	}
	if seq > last { // it may not be on disk
		return engine.Record{}, false, nil
	}
	err = e.get(recordKey(name, seq), func(v []byte) (err error) {
		r, _, err = parseRecord(seq, v)
		r.Data = append([]byte{}, r.Data...)
		return err
	})
	if errors.Is(err, pebbledb.ErrNotFound) {
		r, err = engine.Record{Seq: seq}, nil // it was removed
	}
	r.Key = key
	return r, err == nil, err
}

// mayHave reports whether a stream may have a key, and the seq up to which the stream is on disk.
func (e *Engine) mayHave(stream string, name []byte, key string) (may bool, last uint64, err error) {
	if err := e.Failure(); err != nil {
		return false, 0, err
	}
	used := e.heads.Acquire(stream)
	defer e.heads.Release(used)
	at := &used.Value
	at.mu.Lock()
	defer at.mu.Unlock()
	if err := e.load(stream, at); err != nil {
		return false, 0, err
	}
	hash := keyHash([]byte(key))
	may, known := e.filters.has(stream, hash)
	if known {
		return may, at.head.Last, nil
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
	iter, err := e.db.NewIter(&pebbledb.IterOptions{
		LowerBound: textKey(kindKey, name, ""), UpperBound: textKey(kindKey, name, "\xff"),
	})
	if err != nil {
		return nil, err
	}
	keys := &keySet{}
	for ok := iter.First(); ok; ok = iter.Next() {
		keys.add(keyHash(iter.Key()[len(name)+2:]))
	}
	return keys, errors.Join(iter.Error(), iter.Close())
}
