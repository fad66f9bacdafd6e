package httpd

import (
	"net/http"
	"time"
)

// Times that a client has for its part of a request.
const (
	WriteTimeout = 10 * time.Second // to accept writeAtOnce bytes of an answer
	bodyTimeout  = 2 * time.Minute  // to send a body
	writeAtOnce  = 64 << 10

	// deadlineSlack is how much earlier a deadline may be. It saves most answers a second one.
	deadlineSlack = time.Second
)

// Paced ends the connection of a client that is too slow: it has timeout to accept each writeAtOnce bytes of an answer,
// and bodyTimeout to send a body. It is the outermost handler, so that it holds for every answer, and for what the
// server writes after a handler has returned.
func Paced(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &pacedWriter{
			ResponseWriter: w, rc: http.NewResponseController(w), timeout: timeout, version: r.ProtoMajor,
		}
		if r.Body != nil && r.Body != http.NoBody {
			// only a test's has no deadlines. The next request has its own
			_ = p.rc.SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		p.extend()
		defer p.extend() // net/http writes the rest when the handler has returned
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

// extend sets the deadline to timeout from now.
func (p *pacedWriter) extend() {
	now := time.Now()
	if now.Sub(p.set) < min(deadlineSlack, p.timeout/10) {
		return
	}
	p.set = now
	_ = p.rc.SetWriteDeadline(now.Add(p.timeout)) // only a test's has no deadlines
}

// rest ends the deadline between writes. HTTP/1 ignores one that has passed; HTTP/2 resets the stream.
func (p *pacedWriter) rest() {
	if p.version >= 2 {
		p.set = time.Time{}
		_ = p.rc.SetWriteDeadline(p.set) // only a test's has no deadlines
	}
}

// Unwrap is for http.ResponseController.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write implements http.ResponseWriter.
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

// Flush implements http.Flusher, for callers without a controller.
func (p *pacedWriter) Flush() { _ = p.FlushError() } // the next write returns the error

// FlushError is called by http.ResponseController.
func (p *pacedWriter) FlushError() error {
	p.extend()
	defer p.rest()
	return p.rc.Flush()
}
