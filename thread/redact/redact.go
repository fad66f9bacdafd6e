// Package redact replaces the values of secrets in texts: of entries, errors, output and files, before they leave the
// process or are written to disk. It finds a value in the forms in which programs print it; SECURITY.md lists them. A
// secret that another program has changed in a further way stays.
package redact

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// MinSecret is the least length of a secret in bytes. Shorter values occur in any text.
const MinSecret = 8

// Redactor replaces the values of secrets in texts by [redacted:NAME]: each value, also without the white space around
// it, each line of it, what it assigns to names that mark secrets, and all of them as JSON escapes them. The zero value
// has no secrets. It is safe for concurrent use.
type Redactor struct {
	finder atomic.Pointer[finder]

	mu     sync.Mutex // held while secrets are added
	values []value
	files  []*secretFile
	list   *secretFile // of more of them, in the folder home; nil for none
	home   string
}

// value is a secret as it was given.
type value struct{ name, text string }

// New returns a Redactor with the secrets of an environment (NAME=value …): the variables that are named in names, and
// all whose name has KEY, TOKEN, SECRET or PASSWORD in it, in whatever case. Values of less than 8 bytes, numbers and
// booleans are no secrets.
func New(environ []string, names []string) *Redactor {
	r := &Redactor{}
	for _, kv := range environ {
		name, text, _ := strings.Cut(kv, "=")
		if slices.Contains(names, name) || marksSecret(name) {
			r.values = append(r.values, value{name, text})
		}
	}
	r.build()
	return r
}

// marksSecret reports whether the value of a variable with the name is a secret.
func marksSecret(name string) bool {
	upper := strings.ToUpper(name)
	return slices.ContainsFunc([]string{"KEY", "TOKEN", "SECRET", "PASSWORD"}, func(word string) bool {
		return strings.Contains(upper, word)
	})
}

// Add makes a value a secret with a name.
func (r *Redactor) Add(name, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.values = append(r.values, value{name, text})
	r.build()
}

// build makes the finder of all values. The caller holds mu, or is the only one to have r.
func (r *Redactor) build() {
	var all []secret
	for _, v := range r.values {
		all = appendSecrets(all, v.name, v.text)
	}
	for _, f := range r.files {
		for _, text := range f.values {
			all = appendSecrets(all, f.name, text)
		}
	}
	r.finder.Store(newFinder(all))
}

// span is a range of a text that is a secret.
type span struct {
	from, to int
	secret   int // index in the finder's secrets: the lower, the longer
}

// Bytes returns s without secrets, nil where it has none. Where secrets overlap, no byte of either is left, and the
// longer one gives the name.
func (r *Redactor) Bytes(s []byte) []byte {
	f := r.finder.Load()
	var out []byte
	done := 0
	for all, ok := f.next(s, 0); ok; {
		more, next := f.next(s, all.from+1)
		for ; next && more.from < all.to; more, next = f.next(s, more.from+1) {
			all.to, all.secret = max(all.to, more.to), min(all.secret, more.secret)
		}
		out = append(out, s[done:all.from]...)
		out = fmt.Appendf(out, "[redacted:%s]", f.secrets[all.secret].name)
		done, all, ok = all.to, more, next
	}
	if out == nil {
		return nil
	}
	return append(out, s[done:]...)
}

// Text returns s without secrets.
func (r *Redactor) Text(s string) string {
	if out := r.Bytes([]byte(s)); out != nil {
		return string(out)
	}
	return s
}

// Head returns s, the beginning of a text that was cut, less what may be the beginning of a secret at its end.
func (r *Redactor) Head(s []byte) []byte {
	f := r.finder.Load()
	for i := max(0, len(s)-f.longest()+1); i < len(s); i++ {
		if f.begins(s[i:]) {
			return s[:i]
		}
	}
	return s
}

// Error returns err, with another text where its own has a secret.
func (r *Redactor) Error(err error) error {
	if err == nil {
		return nil
	}
	if clean := r.Bytes([]byte(err.Error())); clean != nil {
		return &redactedError{err, string(clean)}
	}
	return err
}

// redactedError is an error whose text held a secret.
type redactedError struct {
	err  error
	text string
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }
