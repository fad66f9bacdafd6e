//go:build unix

package session

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// neverBlock are the flags of an open that waits for no other process, whatever the file is.
const neverBlock = unix.O_NONBLOCK | unix.O_NOCTTY

// duplicate returns another descriptor of the same open file.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// identity returns the device and inode of a file, as text.
func identity(st os.FileInfo) string {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("\n%d %d", sys.Dev, sys.Ino)
	}
	return ""
}
