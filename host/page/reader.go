package page

import (
	"context"

	"arbe.0sk.ar/runner/host/access"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// reader reads a thread. Its lease is charged with the records that were read last.
type reader struct {
	*page
	*memory.Lease
	id     string // of the thread
	stream log.Stream
	shared bool // its viewers have a share
}

// reader returns a reader of a thread for a session. The caller frees its lease.
func (p *page) reader(ctx context.Context, s access.Session, id string) (*reader, error) {
	v, err := p.stat(ctx, id)
	if err != nil {
		return nil, err
	}
	return &reader{p, p.lease(s), id, v, s.Share != ""}, nil
}

// runs reports whether the thread has had a run, or may have had one.
func (r *reader) runs(ctx context.Context) bool {
	v, err := r.summary(ctx, r.id)
	return err != nil || v.Status != thread.StatusIdle
}

// read returns the records after a place up to another, as many as fit into most bytes, but at least one append.
func (r *reader) read(ctx context.Context, after, upTo uint64, most int) ([]engine.Record, error) {
	return r.Records(ctx, func() ([]engine.Record, error) { return r.Log.Read(ctx, r.stream, after, upTo, most) })
}

// readBack returns the last records up to a place: whole appends, until they are n or have most bytes.
func (r *reader) readBack(ctx context.Context, upTo uint64, n, most int) ([]engine.Record, error) {
	return r.Records(ctx, func() ([]engine.Record, error) { return r.Log.ReadBack(ctx, r.stream, upTo, n, most) })
}

// record returns the record of an entry, or errNoEntry.
func (r *reader) record(ctx context.Context, name string) (engine.Record, error) {
	found := false
	records, err := r.Records(ctx, func() ([]engine.Record, error) {
		record, ok, err := r.Log.Entry(ctx, r.stream, name)
		found = ok
		return []engine.Record{record}, err
	})
	switch {
	case err != nil:
		return engine.Record{}, err
	case !found:
		return engine.Record{}, errNoEntry
	}
	return records[0], nil
}

// tail builds items from the entries of a thread after a place.
type tail struct {
	reader
	after   uint64 // the place
	holds   int    // bytes that each's caller holds of what it renders, at most
	builder view.Builder
	watch   view.Watch
}

// newTail returns the tail of a reader after a place. It reads what is before, so that results find their calls, and
// the answers of bots their beginnings.
func newTail(ctx context.Context, r reader, after uint64, holds int) (*tail, error) {
	t := &tail{
		reader: r, after: after, holds: holds, builder: view.Builder{Harnesses: r.Harnesses, Runs: r.runs(ctx)},
	}
	n := aheadEntries
	if v, err := r.summary(ctx, r.id); err == nil && v.Reactions > 0 {
		n = mostRead
	}
	records, err := t.readBack(ctx, after, n, aheadBytes)
	if err != nil {
		return nil, err
	}
	defer t.Drop()
	for _, r := range records {
		if e, ok := entryOf(r); ok {
			t.watch.Add(e)
			t.builder.Add(e)
		}
	}
	return t, nil
}

// each moves to another place, and calls emit for each change of an item on the way, with the seq of its append.
func (t *tail) each(ctx context.Context, upTo uint64, emit func(view.Change, uint64) error) error {
	for t.after < upTo {
		records, err := t.read(ctx, t.after, upTo, pieceBytes)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			t.after = upTo // the rest was removed
			break
		}
		if err := t.Grow(min(renderCharge*memory.RecordBytes(records), t.holds)); err != nil {
			return err
		}
		for _, r := range records {
			e, ok := entryOf(r)
			if !ok {
				continue
			}
			t.watch.Add(e)
			for _, c := range t.builder.Add(e) {
				if err := emit(c, r.Seq); err != nil {
					return err
				}
			}
		}
		t.after = records[len(records)-1].Seq
		t.Drop()
	}
	return nil
}
