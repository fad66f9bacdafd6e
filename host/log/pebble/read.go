package pebble

import (
	"context"
	"errors"
	"slices"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Read may return unsynced records; bound it by a Head to read durable ones.
func (e *Engine) Read(_ context.Context, stream string, after, upTo uint64, most int) ([]engine.Record, error) {
	if err := e.Failure(); err != nil {
		return nil, err
	}
	name := keyName(stream)
	iter, err := e.db.NewIter(&pebbledb.IterOptions{
		LowerBound: recordKey(name, after+1), UpperBound: recordKey(name, upTo+1),
	})
	if err != nil {
		return nil, err
	}
	records, err := collect(iter, iter.First, iter.Next, 1<<62, most)
	return records, errors.Join(err, iter.Close())
}

// ReadBack may return unsynced records, as Read may.
func (e *Engine) ReadBack(_ context.Context, stream string, upTo uint64, n, most int) ([]engine.Record, error) {
	if err := e.Failure(); err != nil {
		return nil, err
	}
	name := keyName(stream)
	iter, err := e.db.NewIter(&pebbledb.IterOptions{
		LowerBound: recordKey(name, 0), UpperBound: recordKey(name, upTo+1),
	})
	if err != nil {
		return nil, err
	}
	records, err := collect(iter, iter.Last, iter.Prev, n, most)
	slices.Reverse(records)
	return records, errors.Join(err, iter.Close())
}

// collect returns the records that iter finds by first and next, until they are n or have most bytes.
func collect(iter *pebbledb.Iterator, first, next func() bool, n, most int) ([]engine.Record, error) {
	var records []engine.Record
	var room []byte // shared by the data of many records
	for ok := first(); ok && most > 0 && len(records) < n; ok = next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return nil, err
		}
		r, control, err := parseRecord(keySeq(iter.Key()), value)
		if err != nil {
			return nil, err
		}
		if control {
			continue
		}
		if cap(room)-len(room) < len(r.Data) {
			room = make([]byte, 0, max(len(r.Data), min(most, 256<<10)))
		}
		start := len(room)
		room = append(room, r.Data...)
		r.Data = room[start:len(room):len(room)]
		records = append(records, r)
		most -= len(r.Data)
	}
	return records, iter.Error()
}
