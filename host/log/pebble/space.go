package pebble

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/durable"
)

// space keeps a write from failing because the disk is full, after which the store could not continue. Appends are
// refused while there is still room for the store's own work. If others fill the disk nonetheless, deleting a ballast
// file frees some room.
type space struct {
	fs  vfs.FS
	dir string
	log *slog.Logger

	size    uint64 // of the disk
	reserve int64  // room that appends leave to the store's own work: a memtable or two, and a compaction
	ballast int64  // size of the ballast file

	free   atomic.Int64 // bytes free at the last look, less those appended since
	looked atomic.Int64 // unix nanoseconds of that look
	spent  atomic.Bool  // the ballast file is deleted
}

const lookEvery = time.Second // between two looks at the disk

// newSpace creates dir and looks at its disk.
func newSpace(fs vfs.FS, dir string, log *slog.Logger) (*space, error) {
	if err := durable.MkdirAll(dir); err != nil {
		return nil, err
	}
	usage, err := fs.GetDiskUsage(dir)
	if err != nil {
		return nil, fmt.Errorf("size of the disk of %s: %w", dir, err)
	}
	s := &space{fs: fs, dir: dir, log: log, size: usage.TotalBytes}
	s.free.Store(int64(min(usage.AvailBytes, 1<<62)))
	s.reserve, s.ballast = int64(s.share(8, 4<<20, 256<<20)), int64(s.share(32, 1<<20, 64<<20))
	return s, nil
}

// share is one part-th of the disk, but at least least bytes and at most most.
func (s *space) share(part, least, most uint64) uint64 { return min(max(s.size/part, least), most) }

func (s *space) ballastFile() string { return filepath.Join(s.dir, "ballast") }

// refill creates the ballast file again once there is plenty of room.
func (s *space) refill() error {
	if st, err := os.Stat(s.ballastFile()); err == nil && st.Size() == s.ballast {
		s.spent.Store(false)
		return nil
	}
	if s.free.Load() < s.reserve+2*s.ballast {
		s.spent.Store(true)
		return nil
	}
	f, err := os.OpenFile(s.ballastFile(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = allocate(f, s.ballast)
	if errors.Is(err, errors.ErrUnsupported) {
		err = f.Truncate(s.ballast) // a file without blocks frees no room: then there is the reserve alone
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(s.ballastFile()))
	}
	s.spent.Store(false)
	return nil
}

// full deletes the ballast. Pebble calls it when a write has found no room, and tries the write once more.
func (s *space) full() {
	s.free.Store(0)
	s.spent.Store(true)
	if err := os.Remove(s.ballastFile()); err == nil || !errors.Is(err, os.ErrNotExist) {
		s.log.Error("the log's disk is full: appends are refused until there is room", "folder", s.dir, "error", err)
	}
}

// look reads how much room the disk has.
func (s *space) look(now time.Time) error {
	s.looked.Store(now.UnixNano())
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err != nil {
		return fmt.Errorf("free space in %s: %w", s.dir, err)
	}
	s.free.Store(int64(min(usage.AvailBytes, 1<<62)))
	return nil
}

// room takes n bytes of the free room. It returns ErrFull if less than least bytes would be left.
func (s *space) room(n int, least int64) error {
	if now := time.Now(); now.UnixNano()-s.looked.Load() > int64(lookEvery) {
		if err := s.look(now); err != nil {
			return err
		}
		if s.spent.Load() {
			if err := s.refill(); err != nil {
				return fmt.Errorf("%w: %w", engine.ErrFull, err)
			}
		}
	}
	if left := s.free.Add(-int64(n)); left < least {
		s.free.Add(int64(n)) // the bytes will not be written
		return fmt.Errorf("%w: %d MiB free in %s, %d MiB are reserved", engine.ErrFull, left>>20, s.dir, least>>20)
	}
	return nil
}
