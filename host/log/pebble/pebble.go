package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Pebble is the engine in a folder of this machine. One process at a time has the folder.
type Engine struct {
	db      *pebbledb.DB
	guarded *guardedFS
	space   *space

	heads *engine.Pool[place] // of the streams in use, and of some that were lately

	committing *atomic.Int32 // appends that wait for the disk
	failure    *failure
	backup     sync.Mutex // held while a backup is made, and for good once the store is closed
}

// place is where a stream stands.
type place struct {
	mu     sync.Mutex // held by whoever appends, commit included: a stream has one order
	loaded bool
	head   engine.Head

	// keys are those that the stream has, for one that many are looked up of; nil else.
	keys    *seen
	lookups int
}

// filterAfter is how many keys are looked up of a stream before all that it has are read into a filter.
const filterAfter = 8

// maxIdle is how many streams that nobody uses are kept in mind.
const maxIdle = 10_000

// Open opens the store in dir, and makes it where there is none.
func Open(dir string, log *slog.Logger) (*Engine, error) {
	return open(vfs.Default, dir, log)
}

func open(fs vfs.FS, dir string, log *slog.Logger) (*Engine, error) {
	f := newFailure(log)
	p, err := within(f, func() (*Engine, error) { return openGuarded(fs, dir, log, f) })
	if err != nil {
		return nil, fmt.Errorf("open the log in %s: %w", dir, err)
	}
	return p, nil
}

func openGuarded(fs vfs.FS, dir string, log *slog.Logger, f *failure) (*Engine, error) {
	dir = filepath.Clean(dir)
	space, err := newSpace(fs, dir, log)
	if err != nil {
		return nil, err
	}
	committing := &atomic.Int32{}
	guarded := &guardedFS{FS: vfs.OnDiskFull(fs, space.full), dir: dir, failure: f}
	db, err := pebbledb.Open(dir, options(guarded, committing, space, f))
	if err != nil {
		return nil, err
	}
	err = migrate(db)
	if err == nil { // a copy of a backup that did not come to its end goes, too
		err = errors.Join(space.refill(), os.RemoveAll(copyFolder(dir)))
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	guarded.patient.Store(true)
	return &Engine{
		db: db, guarded: guarded, space: space, committing: committing, failure: f, heads: engine.NewPool[place](maxIdle),
	}, nil
}

// Close closes the store, once a backup that is under way has ended. Nobody else may be using it any more. One that
// has failed is left as it is, for the process to end.
func (p *Engine) Close() error {
	if err := p.Failure(); err != nil {
		return nil //nolint:nilerr // who runs the store has it from Failure
	}
	_, err := within(p.failure, func() (struct{}, error) {
		p.backup.Lock()
		p.guarded.patient.Store(false) // what is not in tables is in the write-ahead log
		return struct{}{}, p.db.Close()
	})
	return err
}

// Append commits with one sync, which appends to other streams share.
func (p *Engine) Append(_ context.Context, stream string, a engine.Append) (engine.Head, error) {
	if err := p.Failure(); err != nil { // who failed may hold the place for good
		return engine.Head{}, err
	}
	used := p.heads.Acquire(stream)
	defer p.heads.Release(used)
	at := &used.Value
	at.mu.Lock()
	defer at.mu.Unlock()
	if err := p.load(stream, at); err != nil {
		return engine.Head{}, err
	}
	if at.head.Last != a.After {
		return at.head, engine.ErrConflict
	}
	batch := p.db.NewBatchWithSize(batchSize(stream, a))
	defer batch.Close() // after a commit there is nothing left in it
	head, err := p.fill(batch, stream, at.head, a)
	if err != nil {
		return engine.Head{}, err
	}
	least := p.space.reserve
	if len(a.Records) == 0 {
		least /= 2 // to delete something begins with such an append, and is what makes room
	}
	if err := p.space.room(batch.Len(), least); err != nil {
		return at.head, err
	}
	if err := p.commit(batch); err != nil {
		at.loaded, at.keys = false, nil
		return engine.Head{}, fmt.Errorf("append to the log: %w", err)
	}
	at.head = head
	if at.keys != nil {
		for _, r := range a.Records {
			at.keys.add(seenHash([]byte(r.Key)))
		}
	}
	return head, nil
}

// batchSize is how many bytes a batch has that holds an append, or some more: one that grows takes twice the memory.
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

// fill puts an append into a batch.
func (p *Engine) fill(batch *pebbledb.Batch, stream string, head engine.Head, a engine.Append) (engine.Head, error) {
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

// putRecord puts a record into a batch, without a copy of it in between.
func putRecord(batch *pebbledb.Batch, key []byte, r engine.Record) error {
	op := batch.SetDeferred(len(key), recordSize(r))
	copy(op.Key, key)
	appendRecord(op.Value[:0], r)
	return op.Finish()
}

// Head is known for a stream in use.
func (p *Engine) Head(_ context.Context, stream string) (engine.Head, error) {
	if err := p.Failure(); err != nil {
		return engine.Head{}, err
	}
	used := p.heads.Acquire(stream)
	defer p.heads.Release(used)
	at := &used.Value
	at.mu.Lock()
	defer at.mu.Unlock()
	err := p.load(stream, at)
	return at.head, err
}

// load finds where the stream stands. The caller holds at.mu, so that nothing is being appended: what the store shows
// of the stream is on disk.
func (p *Engine) load(stream string, at *place) error {
	if err := p.Failure(); err != nil || at.loaded {
		return err
	}
	name := keyName(stream)
	head, err := p.last(name)
	if err != nil {
		return err
	}
	err = p.get(stateKey(name), func(v []byte) error {
		head.State = append([]byte{}, v...)
		return nil
	})
	if err != nil && !errors.Is(err, pebbledb.ErrNotFound) {
		return err
	}
	at.head, at.loaded = head, true
	return nil
}

// last is the stream's head without its state.
func (p *Engine) last(name []byte) (head engine.Head, err error) {
	iter, err := p.db.NewIter(&pebbledb.IterOptions{LowerBound: recordKey(name, 0), UpperBound: recordKey(name, 1<<63)})
	if err != nil {
		return head, err
	}
	if iter.Last() {
		head, err = headAt(iter)
		return head, errors.Join(err, iter.Close())
	}
	if err := errors.Join(iter.Error(), iter.Close()); err != nil {
		return head, err
	}
	err = p.get(textKey(kindGone, name, ""), func(v []byte) (err error) {
		head.Last, err = seqValue(v)
		return err
	})
	if errors.Is(err, pebbledb.ErrNotFound) {
		err = nil
	}
	return head, err
}

// headAt is the head of a stream whose last record iter is at.
func headAt(iter *pebbledb.Iterator) (engine.Head, error) {
	seq := keySeq(iter.Key())
	value, err := iter.ValueAndErr()
	if err != nil {
		return engine.Head{}, err
	}
	if data, control, err := controlValue(value); control {
		return engine.Head{Last: seq, Data: data}, err
	}
	return engine.Head{Last: seq, Data: seq}, nil
}

// Read may return records that are not synced yet where upTo is beyond the stream's Head, which is only ever at
// records that are.
func (p *Engine) Read(_ context.Context, stream string, after, upTo uint64, most int) ([]engine.Record, error) {
	if err := p.Failure(); err != nil {
		return nil, err
	}
	name := keyName(stream)
	iter, err := p.db.NewIter(&pebbledb.IterOptions{LowerBound: recordKey(name, after+1), UpperBound: recordKey(name, upTo+1)})
	if err != nil {
		return nil, err
	}
	var records []engine.Record
	var room []byte // many records share one piece of memory
	for ok := iter.First(); ok && most > 0; ok = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return nil, errors.Join(err, iter.Close())
		}
		r, control, err := parseRecord(keySeq(iter.Key()), value)
		if err != nil {
			return nil, errors.Join(err, iter.Close())
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
		most -= len(value)
	}
	return records, errors.Join(iter.Error(), iter.Close())
}

// Lookup mostly costs no read where there is no such record. It waits for an append to the same stream, and does not
// find what one brings that begins later.
func (p *Engine) Lookup(_ context.Context, stream, key string) (r engine.Record, ok bool, err error) {
	name := keyName(stream)
	known, last, err := p.known(stream, name, key)
	if err != nil || !known {
		return engine.Record{}, false, err
	}
	var seq uint64
	err = p.get(textKey(kindKey, name, key), func(v []byte) (err error) {
		seq, err = seqValue(v)
		return err
	})
	if errors.Is(err, pebbledb.ErrNotFound) {
		return engine.Record{}, false, nil
	}
	if err != nil {
		return engine.Record{}, false, fmt.Errorf("look up %.80q in the log: %w", key, err)
	}
	if seq > last { // it may not be on disk
		return engine.Record{}, false, nil
	}
	err = p.get(recordKey(name, seq), func(v []byte) (err error) {
		r, _, err = parseRecord(seq, v)
		r.Data = append([]byte{}, r.Data...)
		return err
	})
	if errors.Is(err, pebbledb.ErrNotFound) {
		r, err = engine.Record{Seq: seq}, nil // it was removed
	}
	r.Key = key
	return r, err == nil, err
}

// known reports whether a stream may have a key, and the seq up to which the stream is on disk.
func (p *Engine) known(stream string, name []byte, key string) (may bool, last uint64, err error) {
	if err := p.Failure(); err != nil {
		return false, 0, err
	}
	used := p.heads.Acquire(stream)
	defer p.heads.Release(used)
	at := &used.Value
	at.mu.Lock()
	defer at.mu.Unlock()
	if err := p.load(stream, at); err != nil {
		return false, 0, err
	}
	if at.keys == nil {
		if at.lookups++; at.lookups < filterAfter {
			return true, at.head.Last, nil
		}
		iter, err := p.db.NewIter(&pebbledb.IterOptions{LowerBound: textKey(kindKey, name, ""), UpperBound: textKey(kindKey, name, "\xff")})
		if err != nil {
			return false, 0, err
		}
		keys := &seen{}
		for ok := iter.First(); ok; ok = iter.Next() {
			keys.add(seenHash(iter.Key()[len(name)+2:]))
		}
		if err := errors.Join(iter.Error(), iter.Close()); err != nil {
			return false, 0, err
		}
		at.keys = keys
	}
	return at.keys.has(seenHash([]byte(key))), at.head.Last, nil
}

// Value is one look-up. It waits for an append to the same stream, whose values may not be on disk.
func (p *Engine) Value(_ context.Context, stream, name string) (value []byte, err error) {
	if err := p.Failure(); err != nil {
		return nil, err
	}
	used := p.heads.Acquire(stream)
	defer p.heads.Release(used)
	at := &used.Value
	at.mu.Lock()
	defer at.mu.Unlock()
	err = p.get(textKey(kindValue, keyName(stream), name), func(v []byte) error {
		value = append([]byte{}, v...)
		return nil
	})
	if errors.Is(err, pebbledb.ErrNotFound) {
		err = nil
	}
	return value, err
}

// Values are few. It waits for an append to the same stream, whose values may not be on disk.
func (p *Engine) Values(_ context.Context, stream, prefix string) (map[string][]byte, error) {
	if err := p.Failure(); err != nil {
		return nil, err
	}
	used := p.heads.Acquire(stream)
	defer p.heads.Release(used)
	at := &used.Value
	at.mu.Lock()
	defer at.mu.Unlock()
	name := keyName(stream)
	from := textKey(kindValue, name, prefix)
	cut := len(from) - len(prefix)
	iter, err := p.db.NewIter(&pebbledb.IterOptions{LowerBound: from, UpperBound: textKey(kindValue, name, prefix+"\xff\xff")})
	if err != nil {
		return nil, err
	}
	values := map[string][]byte{}
	for ok := iter.First(); ok; ok = iter.Next() {
		v, err := iter.ValueAndErr()
		if err != nil {
			return nil, errors.Join(err, iter.Close())
		}
		values[string(iter.Key()[cut:])] = append([]byte{}, v...)
	}
	return values, errors.Join(iter.Error(), iter.Close())
}

// Remove leaves the keys, and the last record, which says where the stream stands.
func (p *Engine) Remove(ctx context.Context, stream string, seqs []uint64) error {
	head, err := p.Head(ctx, stream)
	if err != nil {
		return err
	}
	batch := p.db.NewBatch()
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
	return p.commit(batch)
}

// Delete leaves the stream's last seq behind.
func (p *Engine) Delete(_ context.Context, stream string) error {
	if err := p.Failure(); err != nil {
		return err
	}
	used := p.heads.Acquire(stream)
	defer p.heads.Release(used)
	at := &used.Value
	at.mu.Lock()
	defer at.mu.Unlock()
	if err := p.load(stream, at); err != nil || !at.head.Exists() {
		return err
	}
	batch := p.db.NewBatch()
	defer batch.Close()
	name := keyName(stream)
	var errs error
	for _, kind := range []byte{kindRecord, kindKey, kindState, kindValue} {
		errs = errors.Join(errs, batch.DeleteRange(textKey(kind, name, ""), textKey(kind, name, "\xff\xff"), nil))
	}
	errs = errors.Join(errs, batch.Set(textKey(kindGone, name, ""), binary.BigEndian.AppendUint64(nil, at.head.Last), nil))
	if errs != nil {
		return errs
	}
	if err := p.commit(batch); err != nil {
		at.loaded = false
		return fmt.Errorf("delete from the log: %w", err)
	}
	at.head, at.keys, at.lookups = engine.Head{Last: at.head.Last}, nil, 0
	return nil
}

// Streams goes in the order of the keys.
func (p *Engine) Streams(ctx context.Context, f func(stream string, h engine.Head) error) error {
	if err := p.Failure(); err != nil {
		return err
	}
	iter, err := p.db.NewIter(&pebbledb.IterOptions{LowerBound: []byte{kindRecord}, UpperBound: []byte{kindRecord + 1}})
	if err != nil {
		return err
	}
	for ok := iter.First(); ok && err == nil; {
		name := append([]byte{}, keyNameOf(iter.Key())...)
		next := textKey(kindRecord, name, "")
		next[len(next)-1]++ // beyond all of this stream's
		var h engine.Head
		if h, err = p.Head(ctx, streamName(name)); err == nil && h.Exists() {
			err = f(streamName(name), h)
		}
		if err == nil {
			err = ctx.Err()
		}
		ok = err == nil && iter.SeekGE(next)
	}
	return errors.Join(err, iter.Error(), iter.Close())
}

// Watch has nothing to tell: nobody else has the folder.
func (p *Engine) Watch(ctx context.Context, _ func(string)) error {
	<-ctx.Done()
	return nil
}

// get calls f with the value of key; pebble.ErrNotFound where there is none.
func (p *Engine) get(key []byte, f func(value []byte) error) error {
	value, closer, err := p.db.Get(key)
	if err != nil {
		return err
	}
	return errors.Join(f(value), closer.Close())
}

// stampTime is t as it is stored. What was before 1970 was then.
func stampTime(b []byte, t time.Time) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(max(t.UnixMilli(), 0)))
}
