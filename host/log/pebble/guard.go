package pebble

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardedFS fails the store at the first failed write to its folder, before Pebble gets the error. Pebble's own
// reaction depends on the file: a fatal error, a panic or a nil pointer. After a failed sync it returns records of
// appends that were refused, and that may not be on disk. After a failure nothing more is written.
//
// If the disk has no room for a table or a file of values while the store is open, the write waits. Appends are refused
// meanwhile, and reads continue.
//
// Observed with Pebble 2.1.7: a write-ahead log that can't be created or closed is a panic with locks held (rotateWAL),
// one that can't be written or synced a Fatalf (applyInternal), as is a manifest. A file of values that can't be
// finished is a nil pointer in a goroutine of Pebble (fileBufferedWritable.Abort). A table that can't be written is
// retried at once and without end, and Open does not return meanwhile.
type guardedFS struct {
	vfs.FS
	dir     string
	failure *failure
	patient atomic.Bool // writes wait for room: the store is open, and not being closed
}

// roomPause is the time between two tries of a write that has no room.
const roomPause = 100 * time.Millisecond

// guards reports whether name is the store's folder or a file in it. Files of a backup's copy are not.
func (g *guardedFS) guards(name string) bool {
	return filepath.Dir(name) == g.dir || filepath.Clean(name) == g.dir
}

// write calls do, which writes to the file name. If do fails for a file of the store, write does not return.
func (g *guardedFS) write(name string, do func() error) error {
	if !g.guards(name) {
		return do()
	}
	if g.failure.failed() != nil {
		select {}
	}
	err := do()
	if err != nil {
		g.failure.halt(fmt.Errorf("write %s: %w", filepath.Base(name), err))
	}
	return err
}

// writeRoom is write for a file that may wait for room on the disk.
func (g *guardedFS) writeRoom(name string, do func() error) error {
	table := filepath.Ext(name) == ".sst" || filepath.Ext(name) == ".blob"
	return g.write(name, func() error {
		for {
			err := do()
			if !table || !errors.Is(err, syscall.ENOSPC) || !g.guards(name) || !g.patient.Load() {
				return err
			}
			select {
			case <-time.After(roomPause):
			case <-g.failure.done:
				select {}
			}
		}
	})
}

// open opens a file for writing.
func (g *guardedFS) open(name string, do func() (vfs.File, error)) (f vfs.File, err error) {
	err = g.writeRoom(name, func() (err error) {
		f, err = do()
		return err
	})
	if err != nil || !g.guards(name) {
		return f, err
	}
	return &guardedFile{File: f, fs: g, name: name}, nil
}

// Unwrap implements vfs.FS.
func (g *guardedFS) Unwrap() vfs.FS { return g.FS }

// Create implements vfs.FS.
func (g *guardedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.open(name, func() (vfs.File, error) { return g.FS.Create(name, c) })
}

// ReuseForWrite implements vfs.FS.
func (g *guardedFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.open(to, func() (vfs.File, error) { return g.FS.ReuseForWrite(from, to, c) })
}

// OpenReadWrite implements vfs.FS.
func (g *guardedFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return g.open(name, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, c, opts...) })
}

// OpenDir implements vfs.FS. Pebble opens a folder to sync it.
func (g *guardedFS) OpenDir(name string) (vfs.File, error) {
	return g.open(name, func() (vfs.File, error) { return g.FS.OpenDir(name) })
}

// Rename implements vfs.FS.
func (g *guardedFS) Rename(from, to string) error {
	return g.write(to, func() error { return g.FS.Rename(from, to) })
}

// Link implements vfs.FS.
func (g *guardedFS) Link(from, to string) error {
	return g.write(to, func() error { return g.FS.Link(from, to) })
}

// Remove implements vfs.FS. A file that can't be removed only takes space: Pebble logs the error and continues.
func (g *guardedFS) Remove(name string) error {
	if g.guards(name) && g.failure.failed() != nil {
		select {}
	}
	return g.FS.Remove(name)
}

// guardedFile is a file of the store, open for writing.
type guardedFile struct {
	vfs.File
	fs   *guardedFS
	name string
}

// Write implements vfs.File.
func (f *guardedFile) Write(b []byte) (n int, err error) {
	err = f.fs.writeRoom(f.name, func() error {
		m, err := f.File.Write(b[n:])
		n += m
		return err
	})
	return n, err
}

// WriteAt implements vfs.File.
func (f *guardedFile) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.fs.writeRoom(f.name, func() error {
		m, err := f.File.WriteAt(b[n:], at+int64(n))
		n += m
		return err
	})
	return n, err
}

// Sync implements vfs.File.
func (f *guardedFile) Sync() error { return f.fs.write(f.name, f.File.Sync) }

// SyncData implements vfs.File.
func (f *guardedFile) SyncData() error { return f.fs.write(f.name, f.File.SyncData) }

// SyncTo implements vfs.File.
func (f *guardedFile) SyncTo(n int64) (whole bool, err error) {
	err = f.fs.write(f.name, func() (err error) {
		whole, err = f.File.SyncTo(n)
		return err
	})
	return whole, err
}

// Close implements vfs.File.
func (f *guardedFile) Close() error { return f.fs.write(f.name, f.File.Close) }
