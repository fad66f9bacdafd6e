package folder

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// flush writes the folder's filesystem to disk with one call. One call for each of many files takes minutes.
func flush(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
