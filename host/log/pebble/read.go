package pebble

import (
	"context"
	"errors"

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
	var records []engine.Record
	var room []byte // shared by the data of many records
	for ok := iter.First(); ok && most > 0; ok = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return nil, errors.Join(err, iter.Close())
		}
		r, control, err := parseRecord(keySeq(iter.Key()), value)
		if err != nil {
			return nil, errors.Join(err, iter.Close())
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
		most -= len(value)
	}
	return records, errors.Join(iter.Error(), iter.Close())
}
