package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Append commits one batch with one sync, which concurrent appends to other streams share.
func (e *Engine) Append(_ context.Context, stream string, a engine.Append) (engine.Head, error) {
	at, unlock, err := e.lock(stream)
	if err != nil {
		return engine.Head{}, err
	}
	defer unlock()
	if at.head.Last != a.After {
		return at.head, engine.ErrConflict
	}
	batch := e.db.NewBatchWithSize(batchSize(stream, a))
	defer batch.Close() // frees the batch; after a commit it is empty
	head, err := fill(batch, stream, at.head, a)
	if err != nil {
		return engine.Head{}, err
	}
	least := e.space.reserve
	if len(a.Records) == 0 {
		least /= 2 // a deletion begins with such an append, and frees space
	}
	if err := e.space.room(batch.Len(), least); err != nil {
		return at.head, err
	}
	if err := e.commit(batch); err != nil {
		at.loaded = false
		e.filters.Drop(stream)
		return engine.Head{}, fmt.Errorf("append to the log: %w", err)
	}
	at.head = head
	e.filters.add(stream, a.Records)
	return head, nil
}

// batchSize is the size of the batch of an append, or somewhat more: a batch that has to grow takes twice the memory.
func batchSize(stream string, a engine.Append) int {
	n := 64 + len(stream) + len(a.State) + 32
	for i := range a.Records {
		r := &a.Records[i]
		n += len(stream) + len(r.Data) + 48
		if r.Key != "" {
			n += len(stream) + len(r.Key) + 32
		}
	}
	for k, v := range a.Values {
		n += len(stream) + len(k) + len(v) + 32
	}
	return n
}

// fill writes an append to a batch, and returns the stream's head after it.
func fill(batch *pebbledb.Batch, stream string, head engine.Head, a engine.Append) (engine.Head, error) {
	var errs error
	set := func(key, value []byte) { errs = errors.Join(errs, batch.Set(key, value, nil)) }
	name := keyName(stream)
	for i := range a.Records {
		r := &a.Records[i]
		head.Last++
		head.Data = head.Last
		errs = errors.Join(errs, putRecord(batch, recordKey(name, head.Last), *r))
		if r.Key != "" {
			set(textKey(kindKey, name, r.Key), binary.BigEndian.AppendUint64(nil, head.Last))
		}
	}
	if len(a.Records) == 0 {
		head.Last++
		set(recordKey(name, head.Last), appendControl(nil, head.Data))
	}
	if !bytes.Equal(a.State, head.State) || (a.State == nil) != (head.State == nil) {
		if a.State == nil {
			errs = errors.Join(errs, batch.Delete(stateKey(name), nil))
		} else {
			set(stateKey(name), a.State)
		}
		head.State = a.State
	}
	for k, v := range a.Values {
		if v == nil {
			errs = errors.Join(errs, batch.Delete(textKey(kindValue, name, k), nil))
		} else {
			set(textKey(kindValue, name, k), v)
		}
	}
	return head, errs
}

// putRecord encodes a record into a batch in place, without a copy.
func putRecord(batch *pebbledb.Batch, key []byte, r engine.Record) error {
	op := batch.SetDeferred(len(key), recordSize(r))
	copy(op.Key, key)
	appendRecord(op.Value[:0], r)
	return op.Finish()
}

// commit writes a batch to disk. If the disk fails, commit does not return: the store has failed.
func (e *Engine) commit(batch *pebbledb.Batch) (err error) {
	if err := e.Failure(); err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil { // the store's locks may be held for good, and the batch may be on disk
			e.failure.panicked(r)
			select {}
		}
	}()
	e.committing.Add(1)
	defer e.committing.Add(-1)
	return batch.Commit(pebbledb.Sync)
}

// Remove keeps the stream's last record, from which the head is read.
func (e *Engine) Remove(ctx context.Context, stream string, seqs []uint64) error {
	head, err := e.Head(ctx, stream)
	if err != nil {
		return err
	}
	batch := e.db.NewBatch()
	defer batch.Close()
	name := keyName(stream)
	for _, seq := range seqs {
		if seq >= head.Last {
			continue
		}
		if err := batch.Delete(recordKey(name, seq), nil); err != nil {
			return err
		}
	}
	return e.commit(batch)
}

// Retire is Delete, which keeps the last seq of every stream.
func (e *Engine) Retire(ctx context.Context, stream string) error { return e.Delete(ctx, stream) }

// Delete keeps the stream's last seq, after which a stream of the same name begins.
func (e *Engine) Delete(_ context.Context, stream string) error {
	at, unlock, err := e.lock(stream)
	if err != nil {
		return err
	}
	defer unlock()
	if !at.head.Exists() {
		return nil
	}
	batch := e.db.NewBatch()
	defer batch.Close()
	name := keyName(stream)
	var errs error
	for _, kind := range []byte{kindRecord, kindKey, kindState, kindValue} {
		errs = errors.Join(errs, batch.DeleteRange(textKey(kind, name, ""), textKey(kind, name, "\xff\xff"), nil))
	}
	last := binary.BigEndian.AppendUint64(nil, at.head.Last)
	errs = errors.Join(errs, batch.Set(textKey(kindGone, name, ""), last, nil))
	if errs != nil {
		return errs
	}
	if err := e.commit(batch); err != nil {
		at.loaded = false
		return fmt.Errorf("delete from the log: %w", err)
	}
	at.head, at.lookups = engine.Head{Last: at.head.Last}, 0
	e.filters.Drop(stream)
	return nil
}
