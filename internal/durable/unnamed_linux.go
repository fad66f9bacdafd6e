package durable

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrCopy is the error of Name for a file that can't get that name: the bytes have to be copied.
var ErrCopy = errors.New("a file can't get a name on this file system")

// Unnamed creates a file without a name in the folder dir, for reading and writing. It is gone once it is closed, or
// the process has died, unless Name gave it a name.
func Unnamed(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "(unnamed)")), nil
	}
	// The file system has no such files. One whose name is removed never gets another one.
	f, err := os.CreateTemp(dir, ".unnamed-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Path returns a path at which this process can open an Unnamed file once more, as long as it is open.
func Path(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// Name gives an Unnamed file the name path, and replaces a file that has it. When it returns, content and name are on
// disk. The folder must exist. With ErrCopy nothing has changed: path is on another file system than the file, or one
// of the two can't do this.
func Name(f *os.File, path string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	// A link replaces no file, and a rename does. The name up to there is as one of Create.
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-"+rand.Text())
	if err := unix.Linkat(unix.AT_FDCWD, Path(f), unix.AT_FDCWD, temp, unix.AT_SYMLINK_FOLLOW); err != nil {
		return fmt.Errorf("%w: %w", ErrCopy, &fs.PathError{Op: "link", Path: temp, Err: err})
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return Sync(filepath.Dir(path))
}
