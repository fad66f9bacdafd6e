package pebble

import (
	"os"
	"syscall"
)

// allocate gives an empty file so many bytes of the disk; errors.ErrUnsupported if its file system can't.
func allocate(f *os.File, size int64) error { return syscall.Fallocate(int(f.Fd()), 0, 0, size) }
