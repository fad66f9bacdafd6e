package folder

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// typeOf returns the type of a path with the mode.
func typeOf(mode fs.FileMode) Type {
	switch mode.Type() {
	case 0:
		return File
	case fs.ModeDir:
		return Dir
	case fs.ModeSymlink:
		return Link
	}
	return Special
}

// same reports whether a file has not changed between two calls of stat.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.Mode() == b.Mode() && a.ModTime().Equal(b.ModTime())
}

// errReplaced is returned if a file was replaced between two calls.
var errReplaced = errors.New("the file was replaced meanwhile")

// looks bounds the tries to read a path that changes between two calls.
const looks = 10

// openFile opens a file for reading. It follows no link and does not wait for the writer of a pipe.
func openFile(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	there, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !there.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("open %s: %w", name, errReplaced)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !os.SameFile(there, info) {
		err = fmt.Errorf("open %s: %w", name, errReplaced)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// look returns the entry of name in the host's folder, which must not be below a link. A file that can't be read has no
// SHA256, and so differs from every entry.
func look(root *os.Root, name string) (e Entry, info fs.FileInfo, err error) {
	for range looks {
		e, info, err = glance(root, name)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errReplaced) {
			break
		}
	}
	return e, info, err
}

// version returns the entry of name in the host's folder; none for one below a link or a file.
func version(root *os.Root, name string) (Entry, error) {
	at, err := blocked(root, name)
	if err != nil || at != "" {
		return Entry{}, err
	}
	e, _, err := look(root, name)
	return e, err
}

// glance is one try of look.
func glance(root *os.Root, name string) (Entry, fs.FileInfo, error) {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, nil, nil
	}
	if err != nil {
		return Entry{}, nil, err
	}
	e := Entry{Type: typeOf(info.Mode()), Mode: info.Mode().Perm()}
	switch e.Type {
	case Link:
		e.Mode = 0
		e.Link, err = root.Readlink(name)
	case File:
		e.Size = info.Size()
		e.SHA256, err = hash(root, name)
		if errors.Is(err, fs.ErrPermission) {
			err = nil
		}
	}
	return e, info, err
}

// hash returns the SHA-256 of a file.
func hash(root *os.Root, name string) (Sum, error) {
	f, _, err := openFile(root, name)
	if err != nil {
		return Sum{}, err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return Sum(sum.Sum(nil)), errors.Join(err, f.Close())
}

// blocked returns the first parent of name that exists and is no folder, without following links; "" if there is none.
func blocked(root *os.Root, name string) (string, error) {
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		info, err := root.Lstat(name[:i])
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if !info.IsDir() {
			return name[:i], nil
		}
	}
	return "", nil
}
