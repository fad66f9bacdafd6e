package redact

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// MaxSecretFile is how many bytes of a file that holds secrets are read.
const MaxSecretFile = 64 << 10

// Files is the path, in the home folder of a box's user, of the list of the files that hold secrets: a path on
// each line, relative to the home folder or absolute. The launch of a run writes it.
const Files = ".arbe/secret-files"

// Bounds of a file that holds secrets.
const (
	maxSecretFiles = 1000
	maxRotations   = 256         // of its values that are kept in mind
	maxKept        = 1 << 20     // bytes of those
	freshlyMade    = time.Second // a file that was changed so recently may be changed again without a sign of it
)

// secretFile is a file that holds secrets, which somebody replaces from time to time.
type secretFile struct {
	name, path string
	was        os.FileInfo // when it was read last; nil before
	values     []string    // that it has had, the oldest first
	size       int         // of those
}

// AddFile makes the content of a file a secret with a name: what is in it now, and what Refresh finds in it later. A
// file that is not there has no secret yet. Of one that is larger than 64 KiB the beginning counts.
func (r *Redactor) AddFile(name, path string) {
	r.mu.Lock()
	r.files = append(r.files, &secretFile{name: name, path: path})
	r.mu.Unlock()
	r.Refresh()
}

// AddListed makes the contents of the files in home's list Files secrets, each with the name of its file, as
// AddFile does, also of those that are listed later.
func (r *Redactor) AddListed(home string) {
	r.mu.Lock()
	r.list, r.home = &secretFile{path: filepath.Join(home, Files)}, home
	r.mu.Unlock()
	r.Refresh()
}

// addListed adds the files that the list names. The caller holds mu.
func (r *Redactor) addListed() {
	if r.list == nil || !r.list.refresh() {
		return
	}
	for path := range strings.Lines(r.list.values[len(r.list.values)-1]) {
		if path = strings.TrimSuffix(path, "\n"); !filepath.IsAbs(path) {
			path = filepath.Join(r.home, path)
		}
		known := slices.ContainsFunc(r.files, func(f *secretFile) bool { return f.path == path })
		if !known && len(r.files) < maxSecretFiles {
			r.files = append(r.files, &secretFile{name: filepath.Base(path), path: path})
		}
	}
}

// Refresh takes in what the files of AddFile have become. Call it when a text has come in and before it is redacted. A
// value that came and went between two calls is not known.
func (r *Redactor) Refresh() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addListed()
	changed := false
	for _, f := range r.files {
		changed = f.refresh() || changed
	}
	if changed {
		r.build()
	}
}

// refresh reads the file if it may have changed, and reports whether it has another value.
func (f *secretFile) refresh() bool {
	st, err := os.Stat(f.path)
	if err != nil || !st.Mode().IsRegular() {
		return false // it is being replaced, was removed, or is a pipe that is read once
	}
	same := f.was != nil && os.SameFile(f.was, st) && f.was.Size() == st.Size()
	if same && f.was.ModTime().Equal(st.ModTime()) && time.Since(st.ModTime()) > freshlyMade {
		return false
	}
	value, err := readSecret(f.path)
	if err != nil {
		return false // as above
	}
	f.was = st // what came after it shows the next time
	if value == "" || slices.Contains(f.values, value) {
		return false
	}
	f.values, f.size = append(f.values, value), f.size+len(value)
	for len(f.values) > maxRotations || f.size > maxKept {
		f.size -= len(f.values[0])
		f.values = f.values[1:]
	}
	return true
}

func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() // read only: nothing to lose
	b, err := io.ReadAll(io.LimitReader(f, MaxSecretFile))
	return strings.TrimSpace(string(b)), err
}
