//go:build unix

package pebble

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// busy returns an error of pebbledb.Open as a *BusyError if it is that of the store's lock.
func busy(dir string, err error) error {
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
		return err
	}
	// To close a file releases the locks that this process has on it. It has none: Pebble refuses a second Open of the
	// same process with another error.
	lock, openErr := os.Open(filepath.Join(dir, "LOCK"))
	if openErr != nil {
		return err
	}
	defer lock.Close() // read only: nothing to lose
	holder := unix.Flock_t{Type: unix.F_WRLCK}
	if unix.FcntlFlock(lock.Fd(), unix.F_GETLK, &holder) != nil || holder.Type == unix.F_UNLCK {
		return err // the file system has no locks, or the lock was not the reason
	}
	return &BusyError{PID: max(0, int(holder.Pid)), Err: err}
}
