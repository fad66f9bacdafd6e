package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/host/log/engine"
)

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
	if err := e.Failure(); err != nil {
		return err
	}
	used := e.heads.Acquire(stream)
	defer e.heads.Release(used)
	at := &used.Value
	at.mu.Lock()
	defer at.mu.Unlock()
	if err := e.load(stream, at); err != nil || !at.head.Exists() {
		return err
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
	e.filters.drop(stream)
	return nil
}
