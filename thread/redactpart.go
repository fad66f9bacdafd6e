package thread

import (
	"bytes"
	"unicode/utf8"
)

// Ready returns how many bytes of s, the beginning of a text whose rest is still to come, can be redacted on their own:
// no secret, and no character, begins in them and ends behind them.
func (r *Redactor) Ready(s []byte) int {
	n := len(r.Head(s))
	for moved := true; moved; {
		moved = false
		for _, sec := range r.known() {
			// A secret that is whole in s, and begins before n and ends behind it.
			from := max(0, n-len(sec.value)+1)
			to := min(len(s), n+len(sec.value)-1)
			if from >= n || to <= n {
				continue
			}
			if i := bytes.Index(s[from:to], sec.value); i >= 0 && from+i < n && from+i+len(sec.value) > n {
				n, moved = from+i, true
			}
		}
	}
	for back := 1; back < utf8.UTFMax && back <= n; back++ {
		if c := s[n-back]; utf8.RuneStart(c) {
			if !utf8.FullRune(s[n-back : n]) {
				n -= back
			}
			break
		}
	}
	return n
}
