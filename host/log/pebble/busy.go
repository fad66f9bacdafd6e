package pebble

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

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
