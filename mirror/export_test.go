package mirror

import (
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Shorten is shorten, for its property test.
func Shorten(line []byte, limit int, redact *thread.Redactor) ([]byte, bool) {
	return shorten(new(session.Rewriter), line, limit, redact)
}
