package mirror

import (
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// Encode returns the entry of the file's next line; false where the line has one since before the file changed.
func (e *Encoder) Encode(l session.Line) (thread.Entry, bool) {
	dec, name := e.next(l)
	if name.Again {
		return thread.Entry{}, false
	}
	return e.encode(l, dec, name), true
}

// Shorten is shorten, for its property test.
func Shorten(line []byte, limit int, redactor *redact.Redactor) ([]byte, bool) {
	return shorten(new(session.Rewriter), line, limit, redactor)
}
