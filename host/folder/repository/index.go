package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/git"
	"arbe.0sk.ar/runner/internal/pause"
)

// lockName is git's lock of the index. While it is there no other git changes HEAD, its branch or the index.
const lockName = "index.lock"

// Files beside the index.
const (
	newIndex = "index.arbe"
	oldIndex = "index.arbe-old"
)

// errLocked is returned if another git has the index.
var errLocked = errors.New("another git command is using the repository")

// Times of waiting for another git.
const (
	lockWait  = 10 * time.Second
	lockPause = 50 * time.Millisecond
)

// step is called before each change.
func (r *Repo) step() error {
	if r.Step != nil {
		return r.Step()
	}
	return nil
}

// lock takes git's lock of the index. The lock of a Merge that was killed is taken over: its content names the caller's
// state, which one process at a time has.
func (r *Repo) lock(ctx context.Context) (unlock func() error, err error) {
	none := func() error { return nil }
	path, mine := filepath.Join(r.git, lockName), "arbe "+r.state+"\n"
	if err := r.step(); err != nil {
		return none, err
	}
	for end := time.Now().Add(cmp.Or(r.LockWait, lockWait)); ; {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			_, err = io.WriteString(f, mine)
			if err = errors.Join(err, f.Close()); err != nil {
				return none, errors.Join(err, os.Remove(path))
			}
			return func() error { return r.unlock(path) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return none, err
		}
		b, err := os.ReadFile(path)
		switch {
		case err == nil && string(b) == mine:
			if err := os.Remove(path); err != nil {
				return none, err
			}
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return none, err
		case time.Now().After(end):
			return none, errLocked
		case !pause.For(ctx, lockPause):
			return none, context.Cause(ctx)
		}
	}
}

// unlock removes the lock, and the files of a change of the index.
func (r *Repo) unlock(lock string) error {
	if err := r.step(); err != nil {
		return err
	}
	var errs []error
	for _, path := range []string{filepath.Join(r.git, newIndex), filepath.Join(r.git, oldIndex), lock} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// writeIndex sets entries of the index, all at once. Their files count as not looked at: git compares them at its next
// look. The new index has the time of the old one, because git does not trust an entry that is as young as the index:
// such a file may have changed within the same second. restore puts the old index back. The caller has the lock.
func (r *Repo) writeIndex(ctx context.Context, set map[string]Entry, zero string) (restore func() error, err error) {
	path := filepath.Join(r.git, "index")
	to, old := filepath.Join(r.git, newIndex), filepath.Join(r.git, oldIndex)
	there, err := copyFile(path, to)
	if err != nil {
		return nil, err
	}
	var gone, set2 strings.Builder
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if e := set[name]; e == (Entry{}) {
			fmt.Fprintf(&gone, "0 %s 0\t%s\x00", zero, name)
		} else {
			fmt.Fprintf(&set2, "%s %s 0\t%s\x00", e.Mode, e.Object, name)
		}
	}
	_, err = r.do(ctx, git.Command{
		Args: []string{"update-index", "-z", "--index-info"}, Env: []string{"GIT_INDEX_FILE=" + to},
		Stdin: strings.NewReader(gone.String() + set2.String()),
	})
	if err == nil && there {
		err = sameTime(path, to)
	}
	if err == nil {
		err = syncFile(to)
	}
	if err == nil {
		err = r.step()
	}
	if err != nil {
		return nil, err
	}
	if there {
		if _, err := copyFile(path, old); err != nil {
			return nil, err
		}
	}
	if err := os.Rename(to, path); err != nil {
		return nil, err
	}
	return func() error {
		if !there {
			return os.Remove(path)
		}
		return os.Rename(old, path)
	}, nil
}

// copyFile copies a file with its mode; false if there is none. An older copy is replaced.
func copyFile(from, to string) (there bool, err error) {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	f, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // read only: nothing to lose
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	g, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return false, err
	}
	_, err = io.Copy(g, f)
	return true, errors.Join(err, g.Close())
}

// sameTime gives a file the time of another one.
func sameTime(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	return os.Chtimes(to, time.Time{}, info.ModTime())
}

// syncFile writes a file to disk.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
