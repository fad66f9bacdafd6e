package pebble

import (
	"context"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// commit writes a batch to disk. Where the disk fails it does not return: the store has failed.
func (p *Engine) commit(batch *pebbledb.Batch) (err error) {
	if err := p.Failure(); err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil { // locks of the store may be held for good, and the batch may be on disk
			p.failure.panicked(r)
			select {}
		}
	}()
	p.committing.Add(1)
	defer p.committing.Add(-1)
	return batch.Commit(pebbledb.Sync)
}

// Check returns why nothing can be appended: the store has failed, or there is no room.
func (p *Engine) Check(context.Context) error {
	if err := p.Failure(); err != nil {
		return err
	}
	return p.space.room(0, p.space.reserve)
}
