package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/durable"
)

// ErrExists is the error of Restore where there is a log.
var ErrExists = errors.New("there is a log already")

// copyFolder holds a store's files while they are backed up. It is on the store's disk, so that they are links.
func copyFolder(dir string) string { return dir + ".backup" }

// Backup writes a copy of the store to w: all appends that were durable when it began, and some later ones, each whole.
// Appends continue meanwhile. engine.ErrBusy: another backup is running. ErrFull: the disk has no room for the copy.
// Until Backup returns, files that the store has deleted still take space.
func (e *Engine) Backup(ctx context.Context, w io.Writer) (err error) {
	if !e.backup.TryLock() {
		return engine.ErrBusy
	}
	defer e.backup.Unlock()
	dir := copyFolder(e.space.dir)
	if err := os.RemoveAll(dir); err != nil { // an earlier backup may have failed to
		return err
	}
	if err := e.roomForCopy(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	_, err = within(e.failure, func() (struct{}, error) {
		return struct{}{}, e.db.Checkpoint(dir, pebbledb.WithFlushedWAL())
	})
	if err != nil {
		return fmt.Errorf("copy the log: %w", err)
	}
	return writeArchive(ctx, w, dir)
}

// roomForCopy returns ErrFull if the disk has no room for copies of the files that can't be links: those that the store
// still writes to.
func (e *Engine) roomForCopy() error {
	entries, err := os.ReadDir(e.space.dir)
	if err != nil {
		return err
	}
	var need int64
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".log") && !strings.HasPrefix(entry.Name(), "MANIFEST-") {
			continue
		}
		if st, err := entry.Info(); err == nil { // a file that is deleted meanwhile is not copied
			need += st.Size()
		}
	}
	if err := e.space.look(time.Now()); err != nil {
		return err
	}
	if left := e.space.free.Load() - need; left < e.space.reserve/2 {
		return fmt.Errorf("%w: a backup takes %d MiB of it while it runs", engine.ErrFull, need>>20)
	}
	return nil
}

// Restore creates the store in dir from a backup, whole or not at all. ErrExists: dir has a store, or other files.
// ErrBackup: the backup is damaged. format.ErrLater: a later program has written it.
func Restore(ctx context.Context, r io.Reader, dir string) (b Backup, err error) {
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	if err := durable.MkdirAll(parent); err != nil {
		return b, err
	}
	if err := checkEmpty(dir); err != nil {
		return b, err
	}
	temp, err := os.MkdirTemp(parent, filepath.Base(dir)+".restore-")
	if err != nil {
		return b, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	b, err = readArchive(ctx, r, func(name string) (io.WriteCloser, error) {
		f, err := os.OpenFile(filepath.Join(temp, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		return syncedFile{f}, err
	})
	if err != nil {
		return b, err
	}
	// To open the store, as the server will, replays its write-ahead log, and proves that it is a store.
	e, err := open(vfs.Default, temp, slog.New(slog.DiscardHandler))
	if err != nil {
		return b, err
	}
	if err := errors.Join(e.Close(), durable.Sync(temp)); err != nil {
		return b, err
	}
	if err := checkEmpty(dir); err != nil { // another process may have been faster
		return b, err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // it is empty
		return b, err
	}
	return b, durable.Rename(temp, dir)
}

// checkEmpty returns ErrExists if there is any file in dir. A folder that doesn't exist is empty.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%w in %s", ErrExists, dir)
	}
	return nil
}

// syncedFile is synced when it is closed. It is part of a new folder that durable.Rename names in the end.
type syncedFile struct{ *os.File }

func (f syncedFile) Close() error { return errors.Join(f.File.Sync(), f.File.Close()) }
