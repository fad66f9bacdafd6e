package mirror

import (
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread/redact"
)

// Shorten is shorten, for its property test.
func Shorten(line []byte, limit int, redactor *redact.Redactor) ([]byte, bool) {
	return shorten(new(session.Rewriter), line, limit, redactor)
}
