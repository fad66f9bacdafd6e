package redact

import (
	"slices"
	"unicode/utf8"
)

// Parts redacts a text that comes in parts, wherever it is cut. It holds back what may be the beginning of a secret,
// 16 KiB at most. It is not safe for concurrent use.
type Parts struct {
	redact *Redactor
	held   []byte
}

// Parts returns what redacts one text that comes in parts.
func (r *Redactor) Parts() *Parts { return &Parts{redact: r} }

// Next takes the next part, and returns what can be passed on.
func (p *Parts) Next(part []byte) string {
	p.redact.Refresh()
	p.held = append(p.held, part...)
	n := p.redact.Ready(p.held)
	text := p.redact.Text(string(p.held[:n]))
	p.held = slices.Clone(p.held[n:])
	return text
}

// Rest returns what is held back: no more comes.
func (p *Parts) Rest() string {
	text := p.redact.Text(string(p.held))
	p.held = nil
	return text
}

// Ready returns how many bytes of s, the beginning of a text whose rest is still to come, can be redacted on their own:
// no secret, and no character, begins in them and ends behind them.
func (r *Redactor) Ready(s []byte) int {
	n := len(r.Head(s))
	f := r.finder.Load()
	for moved := true; moved; {
		moved = false
		// A secret that is whole in s, and begins before n and ends behind it.
		for found, ok := f.next(s, max(0, n-f.longest()+1)); ok && found.from < n; found, ok = f.next(s, found.from+1) {
			if found.to > n {
				n, moved = found.from, true
				break
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
