package pebble

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/durable"
)

// space keeps the disk from being full in the middle of a write, after which the store could not go on: appends are refused while there is still room
// for what the store does by itself, and where others fill the disk nonetheless, a file that was kept for it makes room.
type space struct {
	fs  vfs.FS
	dir string
	log *slog.Logger

	size    uint64 // of the disk
	reserve int64  // is left to the store's own work: a memtable or two, and a compaction
	ballast int64  // is kept in a file for when even that is gone

	free   atomic.Int64 // bytes, as of the last look, less what was appended since
	looked atomic.Int64 // unix nanoseconds of that look
	spent  atomic.Bool  // the ballast is gone
}

const lookEvery = time.Second

// newSpace looks at the disk that dir is on, and makes dir.
func newSpace(fs vfs.FS, dir string, log *slog.Logger) (*space, error) {
	if err := durable.MkdirAll(dir); err != nil {
		return nil, err
	}
	usage, err := fs.GetDiskUsage(dir)
	if err != nil {
		return nil, fmt.Errorf("the disk of %s: %w", dir, err)
	}
	s := &space{fs: fs, dir: dir, log: log, size: usage.TotalBytes}
	s.free.Store(int64(min(usage.AvailBytes, 1<<62)))
	s.reserve, s.ballast = int64(s.share(8, 4<<20, 256<<20)), int64(s.share(32, 1<<20, 64<<20))
	return s, nil
}

// share is a part of the disk, within limits.
func (s *space) share(part, least, most uint64) uint64 { return min(max(s.size/part, least), most) }

func (s *space) ballastFile() string { return filepath.Join(s.dir, "ballast") }

// refill makes the ballast again, once there is plenty of room.
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
	err = syscall.Fallocate(int(f.Fd()), 0, 0, s.ballast)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		err = f.Truncate(s.ballast) // without blocks of its own it makes no room: then only the reserve does
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(s.ballastFile()))
	}
	s.spent.Store(false)
	return nil
}

// full is called when a write found no room. It is tried once more.
func (s *space) full() {
	s.free.Store(0)
	s.spent.Store(true)
	if err := os.Remove(s.ballastFile()); err == nil || !errors.Is(err, os.ErrNotExist) {
		s.log.Error("the log's disk is full: appends are refused until there is room", "folder", s.dir, "error", err)
	}
}

// look asks the disk how much room there is.
func (s *space) look(now time.Time) error {
	s.looked.Store(now.UnixNano())
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err != nil {
		return fmt.Errorf("free room in %s: %w", s.dir, err)
	}
	s.free.Store(int64(min(usage.AvailBytes, 1<<62)))
	return nil
}

// room returns ErrFull where there is not enough of it for n bytes more, so that least remains.
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
		s.free.Add(int64(n)) // it is not going to be written
		return fmt.Errorf("%w: %d MiB free in %s, %d MiB are kept for what is there", engine.ErrFull, left>>20, s.dir, least>>20)
	}
	return nil
}
