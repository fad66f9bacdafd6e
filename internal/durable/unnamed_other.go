//go:build !linux

package durable

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// ErrCopy is the error of Name for a file that can't get that name: the bytes have to be copied.
var ErrCopy = errors.New("a file can't get a name on this file system")

// Unnamed creates a temporary file in the folder dir, for reading and writing. Where the system can remove the name of
// an open file, it is gone once it is closed.
func Unnamed(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".unnamed-")
	if err == nil {
		_ = os.Remove(f.Name()) // Windows refuses
	}
	return f, err
}

// Path returns a path at which this process can open an Unnamed file once more, as long as it is open.
func Path(f *os.File) string {
	if runtime.GOOS == "windows" { // where the file has kept its name
		return f.Name()
	}
	return fmt.Sprintf("/dev/fd/%d", f.Fd())
}

// Name returns ErrCopy.
func Name(*os.File, string) error { return ErrCopy }
