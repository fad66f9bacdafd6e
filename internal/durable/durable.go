// Package durable changes what a file system holds so that it is on disk when a call returns: the bytes, and the
// names that lead to them. A file is there as a whole or not at all.
package durable

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// WriteFile makes the file at path hold b, for nobody else to read. Its folder must be there.
func WriteFile(path string, b []byte) error {
	_, err := Write(path, bytes.NewReader(b))
	return err
}

// Write is WriteFile for what r gives, and returns its length.
func Write(path string, r io.Reader) (n int64, err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-") // 0600
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	n, err = io.Copy(tmp, r)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return n, err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return n, err
	}
	return n, Sync(filepath.Dir(path))
}

// Rename gives a file another name in its folder.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return Sync(filepath.Dir(to))
}

// MkdirAll makes the folder at path, and those above it that are missing, for nobody else to read.
func MkdirAll(path string) error {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil
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

// Sync brings the names in a folder to disk, where that can be had: a folder that may be written and not read can't
// be synced, and some file systems have no sync for folders (EINVAL).
func Sync(dir string) error {
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
