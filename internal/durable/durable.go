// Package durable writes files and folders so that they survive a crash of the machine: when a call returns, the bytes
// and the names that lead to them are on disk. A file is there whole or not at all. Files and folders that it creates
// are for their owner alone (0600, 0700).
package durable

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// WriteFile writes b to the file at path, and replaces a file that is there. The folder must exist.
func WriteFile(path string, b []byte) error {
	_, err := Write(path, bytes.NewReader(b))
	return err
}

// Write is WriteFile for the bytes of r, and returns their number.
func Write(path string, r io.Reader) (n int64, err error) {
	err = Create(path, func(w io.Writer) error {
		n, err = io.Copy(w, r)
		return err
	})
	return n, err
}

// Create is WriteFile for the bytes that write writes. If write fails, the file stays as it was.
func Create(path string, write func(w io.Writer) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-") // 0600
	if err != nil {
		return err
	}
	err = write(temp)
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return Sync(filepath.Dir(path))
}

// Rename renames a file or a folder. Its content must be on disk.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	err := Sync(filepath.Dir(to))
	if old := filepath.Dir(from); old != filepath.Dir(to) {
		err = errors.Join(err, Sync(old))
	}
	return err
}

// MkdirAll creates the folder at path and its missing parents.
func MkdirAll(path string) error {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil
	} else if err == nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	}
	above := filepath.Dir(path)
	if above != path {
		if err := MkdirAll(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return Sync(above)
}

// Sync syncs a folder, that is, the names in it. It returns nil for a folder that can't be synced: one without the
// right to read it, or one on a file system that has no sync for folders (EINVAL).
func Sync(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it syncs files alone
	}
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	if err = d.Sync(); errors.Is(err, syscall.EINVAL) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
