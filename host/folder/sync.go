package folder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/folder/repository"
	"arbe.0sk.ar/runner/internal/filelock"
)

// Sync merges the box's copy of a folder back into it.
type Sync struct {
	Folder
	Base  Base   // the result of CopyIn, or the Base of the last Result
	State string // a folder of this host for temporary files, outside of Path, one for each Path; created if missing
	// Name is that of the refs with what the box has committed and the user's repository can't follow:
	// refs/arbe/<Name>.
	Name string
	// Delete deletes paths here that were deleted in the box and are here in the state that was sent.
	Delete bool

	step     func() error  // called before each change of the folder, only in tests: an error simulates a kill
	lockWait time.Duration // of repository.Repo, only in tests
}

// Result is the result of a Pull.
type Result struct {
	Copied  int   `json:"copied"`  // files and links that have the box's version now
	Bytes   int64 `json:"bytes"`   // of these files
	Deleted int   `json:"deleted"` // files, links and folders that were deleted here
	// Conflicts are the paths that the host and the box changed differently. PATH is the host's version, PATH.box the
	// box's, or PATH.box-HASH if that was taken or too long. A path that was deleted in the box has none.
	Conflicts []string `json:"conflicts,omitempty"`
	// Skipped are paths that the box changed and that are never copied back: git's configuration and hooks, special
	// files.
	Skipped []string `json:"skipped,omitempty"`
	// Stored are the commits of the box that the user's repositories could not follow.
	Stored []Stored `json:"stored,omitempty"`
	Error  string   `json:"error,omitempty"` // the text of Pull's error

	// Base is the base of the next Pull from this box.
	Base Base `json:"-"`
}

// Stored is a commit of the box in a repository here, by a name of its own.
type Stored struct {
	Path string `json:"path"` // of the repository; "" for the folder
	repository.Name
}

// change is a path that the box has changed. The zero Entry of box means that it was deleted there.
type change struct {
	path      string
	base, box Entry
}

// ErrBusy is returned if another Pull uses the State.
var ErrBusy = errors.New("another sync of the folder is running")

// Pull merges once. It may be repeated at any time. After an error it must be repeated: it then does the rest. If the
// box fails, Pull has changed nothing here. If this machine fails, with a full disk for instance, each path is in its
// old or its new state. When Pull returns nil, its changes are on disk.
func (s Sync) Pull(ctx context.Context, box Source) (res Result, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("sync %s: %w", s.Path, err)
			res.Error = err.Error()
		}
	}()
	res.Base = s.Base
	match, err := newMatcher(s.Exclude)
	if err != nil {
		return res, err
	}
	if err := os.MkdirAll(s.State, 0o700); err != nil {
		return res, err
	}
	unlock, err := lock(filepath.Join(s.State, "lock"))
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	root, err := os.OpenRoot(s.Path)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	notes, err := openNotes(filepath.Join(s.State, "journal"), root)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, notes.Close()) }()

	r, err := newRemote(box, s.State)
	if err != nil {
		return res, err
	}
	defer r.tidy(ctx)
	g := gitMerge{Sync: s, root: root, remote: r, match: match}
	// Before the files: a commit that is made in between has its files, and not the other way round.
	if err := g.look(ctx); err != nil {
		return res, err
	}
	listed, err := r.list(ctx, match)
	if err != nil {
		return res, err
	}
	if len(listed) == 0 && s.Delete && s.any(match) {
		return res, errors.New("the box's folder is empty: nothing was deleted here")
	}
	changes, skipped := s.changes(listed, match)
	res.Skipped = skipped
	if changes, err = g.take(ctx, listed, changes); err != nil {
		return res, err
	}
	want, err := s.wanted(ctx, root, changes)
	if err != nil {
		return res, err
	}
	contents, err := r.contents(ctx, want, listed)
	defer func() { err = errors.Join(err, contents.Close()) }()
	if err != nil {
		return res, err
	}
	m := merge{
		Sync: s, root: root, notes: notes, box: listed, contents: contents.pieces,
		res: &res, base: Manifest{}, aside: map[string]string{}, reported: map[string]bool{},
		wanted: map[string]bool{},
	}
	maps.Copy(m.base, s.Base.Manifest)
	for _, name := range want {
		m.wanted[name] = true
	}
	if err := m.run(ctx, changes); err != nil {
		return res, err
	}
	if res.Stored, err = g.merge(ctx, listed, m.base); err != nil {
		return res, err // with the old base: what is not decided yet is compared with it again
	}
	res.Base = Base{m.base, g.after()}
	return res, errors.Join(flush(s.Path), g.unread)
}

// lock takes the lock file. The kernel releases it if the holder dies.
func lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Lock(f); err != nil {
		if errors.Is(err, filelock.ErrLocked) {
			err = ErrBusy
		}
		return nil, errors.Join(err, f.Close())
	}
	return func() error { return errors.Join(filelock.Unlock(f), f.Close()) }, nil
}

// any reports whether the base has a path that is not excluded.
func (s Sync) any(match matcher) bool {
	for path, e := range s.Base.Manifest {
		if !match.hides(path, e.Type == Dir) {
			return true
		}
	}
	return false
}

// changes returns the changes of the box, sorted by path, and the paths that are never copied back.
func (s Sync) changes(box Manifest, match matcher) (list []change, skipped []string) {
	g := guard{base: s.Base.Manifest, box: box}
	held := map[string]bool{}
	consider := func(c change) {
		part := g.holds(c.path)
		if c.box.Type == Special {
			part = c.path
		}
		if part != "" {
			held[part] = true
			return
		}
		list = append(list, c)
	}
	for path, e := range box {
		if base := s.Base.Manifest[path]; e != base {
			consider(change{path: path, base: base, box: e})
		}
	}
	for path, e := range s.Base.Manifest {
		if _, ok := box[path]; !ok && !match.hides(path, e.Type == Dir) {
			consider(change{path: path, base: e})
		}
	}
	slices.SortFunc(list, func(a, b change) int { return strings.Compare(a.path, b.path) })
	return list, slices.Sorted(maps.Keys(held))
}

// wanted returns the changed files whose content is not here yet.
func (s Sync) wanted(ctx context.Context, root *os.Root, changes []change) ([]string, error) {
	var want []string
	for _, c := range changes {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if c.box.Type != File {
			continue
		}
		host, err := version(root, c.path)
		if err != nil {
			return nil, err
		}
		if c.box.SHA256 == (Sum{}) || host.Type != File || host.SHA256 != c.box.SHA256 {
			want = append(want, c.path)
		}
	}
	return want, nil
}
