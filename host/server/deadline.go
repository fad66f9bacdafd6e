package server

import (
	"net/http"
	"time"
)

// Times that a client has for its part of a request.
const (
	writeTimeout = 10 * time.Second // to accept writeAtOnce bytes of an answer
	bodyTimeout  = 2 * time.Minute  // to send a body
	writeAtOnce  = 64 << 10

	// deadlineSlack is how much earlier than that a deadline may be. Within it none is set again: most answers need one.
	deadlineSlack = time.Second
)

// paced ends connections that wait for a client that does not do its part: each writeAtOnce bytes of an answer have to
// be accepted within timeout, and a body has to come within bodyTimeout. It is the outermost handler, so that this
// holds for every answer, refusals and measurements among them, and for what the server writes after a handler has
// returned.
func paced(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &pacedWriter{
			ResponseWriter: w,
			rc:             http.NewResponseController(w),
			timeout:        timeout,
			version:        r.ProtoMajor,
		}
		if r.Body != nil && r.Body != http.NoBody {
			// a reader without deadlines is a test's. The next request has its own
			_ = p.rc.SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		p.extend()
		defer p.extend() // what is buffered is written when the handler has returned
		p.rest()
		next.ServeHTTP(p, r)
	})
}

// pacedWriter sets a deadline for each writeAtOnce bytes.
type pacedWriter struct {
	http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	version int       // of HTTP
	set     time.Time // when the deadline was set; the zero time for none
}

// extend gives the client its time from now on.
func (p *pacedWriter) extend() {
	now := time.Now()
	if now.Sub(p.set) < min(deadlineSlack, p.timeout/10) {
		return
	}
	p.set = now
	_ = p.rc.SetWriteDeadline(now.Add(p.timeout)) // a writer without deadlines is a test's
}

// rest ends the deadline while nothing is being written. A connection of HTTP/1 takes no harm from one that has passed;
// a stream of HTTP/2 is reset then.
func (p *pacedWriter) rest() {
	if p.version >= 2 {
		p.set = time.Time{}
		_ = p.rc.SetWriteDeadline(p.set) // a writer without deadlines is a test's
	}
}

// Unwrap is for http.ResponseController.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write is http.ResponseWriter's.
func (p *pacedWriter) Write(b []byte) (n int, err error) {
	defer p.rest()
	for {
		p.extend()
		at, err := p.ResponseWriter.Write(b[:min(len(b), writeAtOnce)])
		n, b = n+at, b[at:]
		if err != nil || len(b) == 0 {
			return n, err
		}
	}
}

// Flush is http.Flusher's, for callers without a controller.
func (p *pacedWriter) Flush() { _ = p.FlushError() } // the next write returns the error

// FlushError is http.ResponseController's.
func (p *pacedWriter) FlushError() error {
	p.extend()
	defer p.rest()
	return p.rc.Flush()
}
