package thread

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Bounds of a file that holds a secret.
const (
	maxSecretFile = 64 << 10    // bytes that are read of it
	maxRotations  = 256         // of its values that are kept in mind
	freshlyMade   = time.Second // a file that was changed so recently may be changed again without a sign of it
)

// secretFile is a file that holds a secret, which somebody replaces from time to time.
type secretFile struct {
	name, path string
	was        os.FileInfo // when it was read last; nil before
	values     []string    // that it has had, the oldest first
}

// AddFile makes the content of a file a secret with a name, white space around it aside: what is in it now, and what
// Refresh finds in it later. A file that is not there has no secret yet.
func (r *Redactor) AddFile(name, path string) {
	r.mu.Lock()
	r.files = append(r.files, &secretFile{name: name, path: path})
	r.mu.Unlock()
	r.Refresh()
}

// Refresh takes in what the files of AddFile have become. Call it when a text has come in and before it is redacted. A
// value that came and went between two calls is not known.
func (r *Redactor) Refresh() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.files {
		st, err := os.Stat(f.path)
		if err != nil || !st.Mode().IsRegular() {
			continue // it is being replaced, was removed, or is a pipe that is read once
		}
		same := f.was != nil && os.SameFile(f.was, st) && f.was.Size() == st.Size()
		if same && f.was.ModTime().Equal(st.ModTime()) && time.Since(st.ModTime()) > freshlyMade {
			continue
		}
		value, err := readSecret(f.path)
		if err != nil {
			continue // as above
		}
		f.was = st // what came after it shows the next time
		if value == "" || slices.Contains(f.values, value) {
			continue
		}
		r.add(f.name, value)
		if f.values = append(f.values, value); len(f.values) > maxRotations {
			r.forget(f.name, f.values[0])
			f.values = f.values[1:]
		}
	}
}

// forget makes a value of a file no secret any more. The caller holds mu.
func (r *Redactor) forget(name, value string) {
	forms := formsOf(value)
	left := slices.DeleteFunc(slices.Clone(r.known()), func(s secret) bool {
		return s.name == name && slices.ContainsFunc(forms, func(f []byte) bool { return bytes.Equal(f, s.value) })
	})
	r.secrets.Store(&left)
}

func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() // read only: nothing to lose
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile))
	return strings.TrimSpace(string(b)), err
}
