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
)

// Errors of backups that callers tell apart.
var (
	ErrBusy   = errors.New("a backup is under way")
	ErrExists = errors.New("there is a log already")
)

// copyFolder is where a store's files are held while they are backed up: beside it, on the same disk, so that they are links.
func copyFolder(dir string) string { return dir + ".backup" }

// Backup writes a copy of the store to w: all appends that were good when it began, and some of those that came since, each as a whole. Appends go on
// meanwhile. One at a time: ErrBusy. Files that the store is done with take room until it has ended.
func (p *Engine) Backup(ctx context.Context, w io.Writer) (err error) {
	if !p.backup.TryLock() {
		return ErrBusy
	}
	defer p.backup.Unlock()
	dir := copyFolder(p.space.dir)
	if err := os.RemoveAll(dir); err != nil { // what an earlier one could not take away
		return err
	}
	if err := p.roomForCopy(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	_, err = within(p.failure, func() (struct{}, error) {
		return struct{}{}, p.db.Checkpoint(dir, pebbledb.WithFlushedWAL())
	})
	if err != nil {
		return fmt.Errorf("copy the log: %w", err)
	}
	return writeBackup(ctx, w, dir)
}

// roomForCopy returns ErrFull where there is no room for what can't be a link: the files that the store still writes to.
func (p *Engine) roomForCopy() error {
	entries, err := os.ReadDir(p.space.dir)
	if err != nil {
		return err
	}
	var need int64
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".log") && !strings.HasPrefix(e.Name(), "MANIFEST-") {
			continue
		}
		if st, err := e.Info(); err == nil { // one that is gone is not copied
			need += st.Size()
		}
	}
	if err := p.space.look(time.Now()); err != nil {
		return err
	}
	if left := p.space.free.Load() - need; left < p.space.reserve/2 {
		return fmt.Errorf("%w: a backup takes %d MiB of it for a while", engine.ErrFull, need>>20)
	}
	return nil
}

// Restore makes a store in dir, where there is none, of a backup. It is there as a whole or not at all.
func Restore(ctx context.Context, r io.Reader, dir string) (b Backup, err error) {
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return b, err
	}
	if err := absent(dir); err != nil {
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
	b, err = readBackup(ctx, r, func(name string) (io.WriteCloser, error) {
		f, err := os.OpenFile(filepath.Join(temp, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		return syncing{f}, err
	})
	if err != nil {
		return b, err
	}
	// It is opened as the server will, which replays what was not yet in tables, and finds out whether it is a store at all.
	p, err := open(vfs.Default, temp, slog.New(slog.DiscardHandler))
	if err != nil {
		return b, err
	}
	if err := errors.Join(p.Close(), syncFolder(temp)); err != nil {
		return b, err
	}
	if err := absent(dir); err != nil { // another may have been faster
		return b, err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // it is empty
		return b, err
	}
	if err := os.Rename(temp, dir); err != nil {
		return b, err
	}
	return b, syncFolder(parent)
}

// absent returns ErrExists where there is anything in dir.
func absent(dir string) error {
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

// syncing is a file that is on disk once it is closed.
type syncing struct{ *os.File }

func (f syncing) Close() error { return errors.Join(f.File.Sync(), f.File.Close()) }

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
