package redact

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// secret is one form of a value: what is looked for. It has MinSecret bytes at least and maxForm at most.
type secret struct{ name, form string }

// The finder looks at blocks of 4 bytes. A block that no secret has among its first 8 bytes moves it by 5 bytes, so a
// text is read faster than byte by byte, whatever the number of secrets (Wu and Manber's search for several words).
const (
	blockSize = 4
	blockBits = 14
)

// finder finds secrets. It does not change. A nil one finds none.
type finder struct {
	secrets []secret             // the longest first
	sorted  []string             // their forms
	shift   [1 << blockBits]byte // by the hash of a block: how far the next beginning of a secret is at least
	starts  map[uint64][]int     // the secrets by their first 8 bytes, the longest first
}

// newFinder returns the finder of secrets, of which the same form may come several times.
func newFinder(all []secret) *finder {
	slices.SortFunc(all, func(a, b secret) int {
		return cmp.Or(len(b.form)-len(a.form), strings.Compare(a.form, b.form), strings.Compare(a.name, b.name))
	})
	if len(all) == 0 {
		return nil
	}
	f := &finder{starts: map[uint64][]int{}}
	for i := range f.shift {
		f.shift[i] = MinSecret - blockSize + 1
	}
	for _, s := range all {
		n := len(f.secrets)
		if n > 0 && f.secrets[n-1].form == s.form {
			continue
		}
		f.secrets = append(f.secrets, s)
		for end := blockSize; end <= MinSecret; end++ {
			shift := &f.shift[blockOf([]byte(s.form[end-blockSize:end]))]
			*shift = min(*shift, byte(MinSecret-end))
		}
		start := binary.LittleEndian.Uint64([]byte(s.form[:MinSecret]))
		f.starts[start] = append(f.starts[start], n)
		f.sorted = append(f.sorted, s.form)
	}
	slices.Sort(f.sorted)
	return f
}

// blockOf returns the hash of the block at the beginning of b.
func blockOf(b []byte) uint32 { return binary.LittleEndian.Uint32(b) * 2654435761 >> (32 - blockBits) }

// next returns the secret that begins first in s, from the index i on; of several that begin there the longest.
func (f *finder) next(s []byte, i int) (found span, ok bool) {
	if f == nil {
		return span{}, false
	}
	for i+MinSecret <= len(s) {
		if shift := f.shift[blockOf(s[i+MinSecret-blockSize:])]; shift > 0 {
			i += int(shift)
			continue
		}
		for _, n := range f.starts[binary.LittleEndian.Uint64(s[i:])] {
			form := f.secrets[n].form
			if len(form) <= len(s)-i && string(s[i:i+len(form)]) == form {
				return span{i, i + len(form), n}, true
			}
		}
		i++
	}
	return span{}, false
}

// begins reports whether a secret begins with s and is longer.
func (f *finder) begins(s []byte) bool {
	if f == nil {
		return false
	}
	if len(s) >= MinSecret && f.starts[binary.LittleEndian.Uint64(s)] == nil {
		return false
	}
	// The forms that begin with s stand together, s itself first.
	n, _ := slices.BinarySearch(f.sorted, string(s)+"\x00")
	return n < len(f.sorted) && strings.HasPrefix(f.sorted[n], string(s))
}

// longest returns the length of the longest secret.
func (f *finder) longest() int {
	if f == nil {
		return 0
	}
	return len(f.secrets[0].form)
}
