// Package pebble is the log's engine in a folder of this machine, on a Pebble store.
//
// One process at a time has the folder. An append is one batch, and is synced when it returns; appends to different
// streams share syncs. If the disk refuses a write, the engine fails for good (engine.ErrFailed) and writes nothing
// more; the process has to end. If the disk is nearly full, appends are refused (engine.ErrFull), and reads continue.
package pebble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Engine is a store that is open. Open makes one; its owner calls Close.
type Engine struct {
	db      *pebbledb.DB
	guarded *guardedFS
	space   *space

	heads   *engine.Pool[place] // of the streams in use, and of those that were used last
	filters filters

	committing *atomic.Int32 // appends that wait for the disk
	failure    *failure
	backup     sync.Mutex // held while a backup is made, and for good once the store is closed
}

// maxIdle is how many heads are cached of streams that are not in use.
const maxIdle = 10_000

// Open opens the store in dir, and creates it if there is none. It returns format.ErrLater for a store that a later
// program has written, and a *BusyError for one that another process has open.
func Open(dir string, log *slog.Logger) (*Engine, error) {
	return open(vfs.Default, dir, log)
}

func open(fs vfs.FS, dir string, log *slog.Logger) (*Engine, error) {
	f := newFailure(log)
	e, err := within(f, func() (*Engine, error) { return openGuarded(fs, dir, log, f) })
	if err != nil {
		return nil, fmt.Errorf("open the log in %s: %w", dir, err)
	}
	return e, nil
}

func openGuarded(fs vfs.FS, dir string, log *slog.Logger, f *failure) (*Engine, error) {
	dir = filepath.Clean(dir)
	if err := checkStore(fs, dir); err != nil {
		return nil, err
	}
	space, err := newSpace(fs, dir, log)
	if err != nil {
		return nil, err
	}
	committing := &atomic.Int32{}
	guarded := &guardedFS{FS: vfs.OnDiskFull(fs, space.full), dir: dir, failure: f}
	db, err := pebbledb.Open(dir, options(guarded, committing, space, f))
	if err != nil {
		return nil, busy(dir, err)
	}
	err = migrate(db)
	if err == nil { // an unfinished backup may have left its folder
		err = errors.Join(space.refill(), os.RemoveAll(copyFolder(dir)))
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	guarded.patient.Store(true)
	e := &Engine{
		db: db, guarded: guarded, space: space, committing: committing, failure: f,
		heads: engine.NewPool[place](maxIdle),
	}
	e.filters.Most = mostFilterBytes()
	return e, nil
}

// Close waits for a running backup and closes the store. A store that has failed stays as it is until the process ends.
func (e *Engine) Close() error {
	if err := e.Failure(); err != nil {
		return nil //nolint:nilerr // the owner of the store reads Failure
	}
	_, err := within(e.failure, func() (struct{}, error) {
		e.backup.Lock()
		e.guarded.patient.Store(false) // what is not in tables is in the write-ahead log
		return struct{}{}, e.db.Close()
	})
	return err
}

// Check returns why appends fail: the store has failed, or the disk is nearly full.
func (e *Engine) Check(context.Context) error {
	if err := e.Failure(); err != nil {
		return err
	}
	return e.space.room(0, e.space.reserve)
}

// get calls f with the value of key. It reports false for a key without one.
func (e *Engine) get(key []byte, f func(value []byte) error) (found bool, err error) {
	value, closer, err := e.db.Get(key)
	if errors.Is(err, pebbledb.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, errors.Join(f(value), closer.Close())
}

// iterate returns an iterator over the keys from one up to another.
func (e *Engine) iterate(from, upTo []byte) (*pebbledb.Iterator, error) {
	return e.db.NewIter(&pebbledb.IterOptions{LowerBound: from, UpperBound: upTo})
}

// BusyError is the error of Open for a store that another process has open.
type BusyError struct {
	PID int // of that process; 0 if this process can't see it
	Err error
}

func (e *BusyError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("another process has it open: %v", e.Err)
	}
	return fmt.Sprintf("process %d has it open: %v", e.PID, e.Err)
}

// Unwrap returns Pebble's error.
func (e *BusyError) Unwrap() error { return e.Err }
