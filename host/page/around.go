package page

import (
	"context"
	"strings"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// Bounds of a piece that is read forward.
const (
	behindEntries = 50        // behind the entry that a link names
	forthBytes    = 512 << 10 // of entries that are read at once
)

// around returns the piece of a thread around an entry, which is named by its id or by the id of one of its items.
func (p *page) around(
	ctx context.Context, l *memory.Lease, v log.Stream, id, name string,
) (piece, error) {
	at, err := p.seqOf(ctx, l, v, name)
	if err != nil {
		return piece{}, err
	}
	upTo := at
	if at < v.Tail() {
		records, err := l.Records(ctx, func() ([]engine.Record, error) {
			return p.Log.Read(ctx, v, at, v.Tail(), forthBytes)
		})
		if err != nil {
			return piece{}, err
		}
		if n := min(len(records), behindEntries); n > 0 {
			upTo = records[n-1].Seq
		} else {
			upTo = v.Tail() // what follows was removed
		}
		l.Drop()
	}
	found, err := p.back(ctx, l, v, id, upTo, at)
	found.More = found.After < v.Tail()
	return found, err
}

// seqOf returns the seq of an entry, which is named by its id or by the id of one of its items.
func (p *page) seqOf(ctx context.Context, l *memory.Lease, v log.Stream, name string) (uint64, error) {
	name, _, _ = strings.Cut(name, "/") // see view.Item.ID
	if !thread.ValidID(name) {
		return 0, errNoEntry
	}
	defer l.Drop()
	found := false
	records, err := l.Records(ctx, func() ([]engine.Record, error) {
		record, ok, err := p.Log.Entry(ctx, v, name)
		found = ok
		return []engine.Record{record}, err
	})
	switch {
	case err != nil:
		return 0, err
	case !found:
		return 0, errNoEntry
	}
	return records[0].Seq, nil
}

// forth returns the piece of a thread that begins behind a place.
func (p *page) forth(
	ctx context.Context, l *memory.Lease, v log.Stream, id string, after uint64,
) (piece, error) {
	found := piece{Before: after, After: after, Thread: id, Joined: true}
	var records []engine.Record
	items, bytes := 0, 0
	for found.After < v.Tail() && items < pieceItems && len(records) < mostRead && bytes < mostPiece {
		some, err := l.Records(ctx, func() ([]engine.Record, error) {
			return p.Log.Read(ctx, v, found.After, v.Tail(), forthBytes)
		})
		if err != nil {
			return found, err
		}
		if len(some) == 0 {
			found.After = v.Tail() // the rest was removed
			break
		}
		n := min(len(some), pieceEntries)
		for n < len(some) && some[n].Seq == some[n-1].Seq { // the rest of an append
			n++
		}
		some = some[:n]
		found.After = some[n-1].Seq
		for _, r := range some {
			bytes += len(r.Data)
			if e, ok := entryOf(r); ok {
				items += len(view.Items(e, p.Harnesses))
			}
		}
		records = append(records, some...)
		l.Keep(memory.RecordBytes(records))
	}
	found.More = found.After < v.Tail()
	if err := l.Grow(renderCharge * bytes); err != nil {
		return found, err
	}
	return found, p.build(ctx, l, v, records, &found)
}
