package thread

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// MinSecret is the least length of a secret in bytes. Shorter values occur in any text.
const MinSecret = 8

// Redactor replaces the values of secrets in texts by [redacted:NAME]. The zero value has none. It is safe for
// concurrent use.
type Redactor struct {
	secrets atomic.Pointer[[]secret] // longest first

	mu    sync.Mutex // held while secrets are added
	files []*secretFile
}

type secret struct {
	name  string
	value []byte
}

var numberForm = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$`)

// NewRedactor takes its secrets from an environment (NAME=value …): the variables that are named in names, and all
// whose name has KEY, TOKEN, SECRET or PASSWORD in it, in whatever case. Values of less than 8 bytes, numbers and
// booleans are no secrets.
func NewRedactor(environ []string, names []string) *Redactor {
	named := map[string]bool{}
	for _, n := range names {
		named[n] = true
	}
	r := &Redactor{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		upper := strings.ToUpper(name)
		marked := named[name]
		for _, word := range []string{"KEY", "TOKEN", "SECRET", "PASSWORD"} {
			marked = marked || strings.Contains(upper, word)
		}
		if marked {
			r.add(name, value)
		}
	}
	return r
}

// known returns the secrets.
func (r *Redactor) known() []secret {
	if all := r.secrets.Load(); all != nil {
		return *all
	}
	return nil
}

// add makes value a secret with a name. The caller holds mu, or is the only one to have r.
func (r *Redactor) add(name, value string) {
	known := slices.Clone(r.known())
	same := func(s secret) bool { return string(s.value) == value }
	if len(value) < MinSecret || numberForm.MatchString(value) || slices.ContainsFunc(known, same) {
		return
	}
	for _, form := range formsOf(value) {
		known = append(known, secret{name, form})
	}
	sort.SliceStable(known, func(i, j int) bool {
		a, b := known[i], known[j]
		if len(a.value) != len(b.value) {
			return len(a.value) > len(b.value)
		}
		return a.name < b.name
	})
	r.secrets.Store(&known)
}

// formsOf returns the forms of a secret in texts: itself, and as a JSON string, for a tool may print its configuration.
func formsOf(value string) [][]byte {
	plain := Marshal(value)
	escaped, _ := json.Marshal(value) // a string always marshals; this one has \u003c for <
	forms := [][]byte{[]byte(value)}
	for _, form := range [][]byte{plain[1 : len(plain)-1], escaped[1 : len(escaped)-1]} {
		if !slices.ContainsFunc(forms, func(f []byte) bool { return bytes.Equal(f, form) }) {
			forms = append(forms, form)
		}
	}
	return forms
}

// span is a range of a text that is a secret.
type span struct {
	from, to int
	secret   int // index in secrets: the lower, the longer
}

// Bytes returns s without secrets, nil where it has none. Where secrets overlap, no byte of either is left, and the
// longer one gives the name.
func (r *Redactor) Bytes(s []byte) []byte {
	var spans []span
	known := r.known()
	for n, sec := range known {
		for at := 0; ; {
			i := bytes.Index(s[at:], sec.value)
			if i < 0 {
				break
			}
			from, to := at+i, at+i+len(sec.value)
			if k := len(spans) - 1; k >= 0 && spans[k].secret == n && from < spans[k].to {
				spans[k].to = to // it overlaps itself
			} else {
				spans = append(spans, span{from, to, n})
			}
			at = from + 1
		}
	}
	if spans == nil {
		return nil
	}
	sort.Slice(spans, func(i, j int) bool { return spans[i].from < spans[j].from })
	out := make([]byte, 0, len(s))
	done := 0
	for i := 0; i < len(spans); {
		all := spans[i]
		for i++; i < len(spans) && spans[i].from < all.to; i++ {
			all.to = max(all.to, spans[i].to)
			all.secret = min(all.secret, spans[i].secret)
		}
		out = append(out, s[done:all.from]...)
		out = fmt.Appendf(out, "[redacted:%s]", known[all.secret].name)
		done = all.to
	}
	return append(out, s[done:]...)
}

// Head returns s, the beginning of a text that was cut, less what may be the beginning of a secret at its end.
func (r *Redactor) Head(s []byte) []byte {
	keep := len(s)
	for _, sec := range r.known() {
		for n := min(len(sec.value)-1, len(s)); n > 0; n-- {
			if bytes.HasSuffix(s, sec.value[:n]) {
				keep = min(keep, len(s)-n)
				break
			}
		}
	}
	return s[:keep]
}

// Text returns s without secrets.
func (r *Redactor) Text(s string) string {
	if out := r.Bytes([]byte(s)); out != nil {
		return string(out)
	}
	return s
}
