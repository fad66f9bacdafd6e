package page

import (
	"context"
	"strings"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/thread"
)

// Bounds of a piece that is read forward.
const (
	behindEntries = 50        // behind the entry that a link names
	forthBytes    = 512 << 10 // of entries that are read at once
)

// around returns the piece of a thread around an entry, which is named by its id or by the id of one of its items.
func (r *reader) around(ctx context.Context, name string) (piece, error) {
	at, err := r.seqOf(ctx, name)
	if err != nil {
		return piece{}, err
	}
	upTo, end := at, r.stream.Tail()
	if at < end {
		records, err := r.read(ctx, at, end, forthBytes)
		if err != nil {
			return piece{}, err
		}
		if n := min(len(records), behindEntries); n > 0 {
			upTo = records[n-1].Seq
		} else {
			upTo = end // what follows was removed
		}
		r.Drop()
	}
	found, err := r.back(ctx, upTo, at)
	found.More = found.After < end
	return found, err
}

// seqOf returns the seq of an entry, which is named by its id or by the id of one of its items.
func (r *reader) seqOf(ctx context.Context, name string) (uint64, error) {
	name, _, _ = strings.Cut(name, "/") // see view.Item.ID
	if !thread.ValidID(name) {
		return 0, errNoEntry
	}
	defer r.Drop()
	record, err := r.record(ctx, name)
	return record.Seq, err
}

// forth returns the piece of a thread that begins behind a place.
func (r *reader) forth(ctx context.Context, after uint64) (piece, error) {
	found, end := piece{Before: after, After: after, Thread: r.id, Joined: true}, r.stream.Tail()
	var records []engine.Record
	items, bytes := 0, 0
	for found.After < end && items < pieceItems && len(records) < mostRead && bytes < mostPiece {
		some, err := r.read(ctx, found.After, end, forthBytes)
		if err != nil {
			return found, err
		}
		if len(some) == 0 {
			found.After = end // the rest was removed
			break
		}
		n := min(len(some), pieceEntries)
		for n < len(some) && some[n].Seq == some[n-1].Seq { // the rest of an append
			n++
		}
		some = some[:n]
		found.After = some[n-1].Seq
		items, bytes = items+r.countItems(some), bytes+dataBytes(some)
		records = append(records, some...)
		r.Keep(memory.RecordBytes(records))
	}
	found.More = found.After < end
	return found, r.build(ctx, records, &found)
}
