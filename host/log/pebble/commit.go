package store

import (
	"context"

	"github.com/cockroachdb/pebble/v2"
)

// commit writes a batch to disk. Where the disk fails it does not return: the store has failed.
func (p *Pebble) commit(batch *pebble.Batch) (err error) {
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
	return batch.Commit(pebble.Sync)
}

// Check returns why nothing can be appended: the store has failed, or there is no room.
func (p *Pebble) Check(context.Context) error {
	if err := p.Failure(); err != nil {
		return err
	}
	return p.space.room(0, p.space.reserve)
}
