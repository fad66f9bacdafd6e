package page

import (
	"context"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/view"
)

// tail builds items from the entries of a thread after a place.
type tail struct {
	log     *log.Log
	after   uint64        // the place
	lease   *memory.Lease // charged while entries are read
	holds   int           // bytes that each's caller holds of what it renders, at most
	builder view.Builder
	watch   view.Watch
}

// prime reads what is before the place, so that results find their calls.
func (t *tail) prime(ctx context.Context, v log.Stream) error {
	records, err := t.lease.Records(ctx, func() ([]engine.Record, error) {
		return t.log.ReadBack(ctx, v, t.after, aheadEntries, aheadBytes)
	})
	if err != nil {
		return err
	}
	defer t.lease.Drop()
	for _, r := range records {
		if e, ok := entryOf(r); ok {
			t.watch.Add(e)
			t.builder.Add(e)
		}
	}
	return nil
}

// each moves to another place, and calls emit for each change of an item on the way, with the seq of its append.
func (t *tail) each(ctx context.Context, v log.Stream, upTo uint64, emit func(view.Change, uint64) error) error {
	for t.after < upTo {
		records, err := t.lease.Records(ctx, func() ([]engine.Record, error) {
			return t.log.Read(ctx, v, t.after, upTo, pieceBytes)
		})
		if err != nil {
			return err
		}
		if len(records) == 0 {
			t.after = upTo // the rest was removed
			break
		}
		if err := t.lease.Grow(min(renderCharge*memory.RecordBytes(records), t.holds)); err != nil {
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
		t.lease.Drop()
	}
	return nil
}
