package mirror

import (
	"fmt"
	"unicode/utf8"

	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// shorten returns a line's JSON without secrets and in at most limit bytes; cut reports that something was left out. The long strings go first:
// each keeps its beginning, and a mark says how long it was and what its SHA-256. nil where all strings together would not be enough.
// Secrets are taken out before a string is cut, so that no half of one is left. Where nothing changes it returns line itself.
func shorten(w *session.Rewriter, line []byte, limit int, redact *thread.Redactor) (short []byte, cut bool) {
	if len(line) <= limit {
		if short = w.Rewrite(line, redact.Bytes); len(short) <= limit {
			return short, false
		}
	}
	for most := limit / 4; most >= 32; most /= 4 {
		short = w.Rewrite(line, func(s []byte) []byte {
			clean := redact.Bytes(s)
			if clean == nil {
				if len(s) <= most {
					return nil
				}
				clean = s
			}
			if len(clean) <= most {
				return clean
			}
			head := most
			for head > 0 && !utf8.RuneStart(clean[head]) {
				head--
			}
			return append(clean[:head:head], cutMark(clean)...)
		})
		if len(short) <= limit {
			return short, true
		}
	}
	return nil, true
}

// cutMark stands at the end of a text that was cut.
func cutMark(whole []byte) string {
	return fmt.Sprintf("[cut: %d bytes, sha256 %s]", len(whole), digest(whole))
}
