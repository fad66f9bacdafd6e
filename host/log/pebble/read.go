package pebble

import (
	"context"
	"errors"
	"math"
	"slices"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Read may return unsynced records; bound it by a Head to read durable ones.
func (e *Engine) Read(_ context.Context, stream string, after, upTo uint64, most int) ([]engine.Record, error) {
	const all = math.MaxInt
	return e.collect(stream, after+1, upTo, (*pebbledb.Iterator).First, (*pebbledb.Iterator).Next, all, most)
}

// ReadBack may return unsynced records, as Read may.
func (e *Engine) ReadBack(_ context.Context, stream string, upTo uint64, n, most int) ([]engine.Record, error) {
	records, err := e.collect(stream, 0, upTo, (*pebbledb.Iterator).Last, (*pebbledb.Iterator).Prev, n, most)
	slices.Reverse(records)
	return records, err
}

// collect returns the records of a stream from one seq to another that an iterator finds by first and next, until they
// are n or have most bytes.
func (e *Engine) collect(
	stream string, from, upTo uint64, first, next func(*pebbledb.Iterator) bool, n, most int,
) (records []engine.Record, err error) {
	if err := e.Failure(); err != nil {
		return nil, err
	}
	name := keyName(stream)
	iter, err := e.iterate(recordKey(name, from), recordKey(name, upTo+1))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	var room []byte // shared by the data of many records
	for ok := first(iter); ok && most > 0 && len(records) < n; ok = next(iter) {
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
