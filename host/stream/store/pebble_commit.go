package store

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// fatal is what pebbleLog.Fatalf panics with.
type fatal string

// commit writes a batch to disk. Where the write-ahead log can't be written, not even in the ballast's place, nothing is appended any more until the store
// is opened again, which finds out what of it is on disk. Reads go on, and Check says so.
func (p *Pebble) commit(batch *pebble.Batch) (err error) {
	if dead := p.dead.Load(); dead != nil {
		return *dead
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fatal:
			err = fmt.Errorf("the log takes nothing more until it is opened again: %s", r)
			p.dead.Store(&err)
		default:
			panic(r)
		}
	}()
	p.committing.Add(1)
	defer p.committing.Add(-1)
	return batch.Commit(pebble.Sync)
}

// Check tells whether something can be appended, and there is room for it.
func (p *Pebble) Check(context.Context) error {
	if dead := p.dead.Load(); dead != nil {
		return *dead
	}
	return p.space.room(0, p.space.reserve)
}
