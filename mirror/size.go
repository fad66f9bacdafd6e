package mirror

import (
	"crypto/sha256"
	"unicode/utf8"

	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread/redact"
)

// shorten returns a line's JSON without secrets and in at most limit bytes; cut reports that a string was cut. Each
// long string keeps its beginning, and a mark with its length and SHA-256 (session.CutMark). Secrets are replaced
// before a string is cut, so that no half of one is left. shorten returns line itself where nothing changes, and nil
// where the line is still too long with all strings cut.
func shorten(w *session.Rewriter, line []byte, limit int, redactor *redact.Redactor) (short []byte, cut bool) {
	if len(line) <= limit {
		if short = w.Rewrite(line, func(s []byte) []byte { return clean(s, redactor) }); len(short) <= limit {
			return short, false
		}
	}
	for most := limit / 4; most >= 32; most /= 4 {
		short = w.Rewrite(line, func(s []byte) []byte {
			clean := clean(s, redactor)
			if clean == nil {
				if len(s) <= most {
					return nil
				}
				clean = s
			}
			if len(clean) <= most {
				return clean
			}
			before, mark := session.Uncut(clean)
			if mark == nil {
				mark = []byte(cutMark(clean))
			}
			head := min(most, len(before))
			for head > 0 && head < len(before) && !utf8.RuneStart(before[head]) {
				head--
			}
			return append(before[:head:head], mark...)
		})
		if len(short) <= limit {
			return short, true
		}
	}
	return nil, true
}

// clean returns a string without secrets; nil where it has none. Where the string was cut when it was read, clean also
// removes the half of a secret at the cut.
func clean(s []byte, redactor *redact.Redactor) []byte {
	head, mark := session.Uncut(s)
	if mark == nil {
		return redactor.Bytes(s)
	}
	kept := redactor.Bytes(head)
	changed := kept != nil
	if !changed {
		kept = head
	}
	if short := redactor.Head(kept); changed || len(short) < len(kept) {
		return append(short[:len(short):len(short)], mark...)
	}
	return nil
}

// cutMark returns the mark for the end of a text that was cut.
func cutMark(whole []byte) string {
	sum := sha256.Sum256(whole)
	return session.CutMark(int64(len(whole)), sum[:])
}
