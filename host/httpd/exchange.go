package httpd

import (
	"io"
	"net/http"
	"sync/atomic"
)

// StatusGone is the status, for logs and measurements, of a request whose client went away before an answer.
const StatusGone = 499

// Exchange counts a request and its answer. Flush, deadlines and other requests to the connection pass through it.
type Exchange struct {
	http.ResponseWriter
	in     atomic.Int64 // net/http reads the rest of a body, too
	body   countedBody
	out    int64
	status int // 0 before the answer
}

// Watch wraps w and r in an Exchange. Layers around one request share it.
func Watch(w http.ResponseWriter, r *http.Request) (*Exchange, *http.Request) {
	if x, ok := w.(*Exchange); ok {
		return x, r
	}
	x := &Exchange{ResponseWriter: w}
	x.body.n = &x.in
	if r.Body != nil && r.Body != http.NoBody {
		// In a copy: net/http looks at its own request's body for Expect: 100-continue.
		copied := *r
		x.body.ReadCloser = r.Body
		copied.Body = &x.body
		r = &copied
	}
	return x, r
}

// Status returns the answer's status: StatusGone where the client left before one. whole: the handler has returned.
func (x *Exchange) Status(r *http.Request, whole bool) int {
	switch {
	case x.status != 0:
		return x.status
	case r.Context().Err() != nil:
		return StatusGone
	case !whole:
		return http.StatusInternalServerError
	default:
		return http.StatusOK // net/http's default
	}
}

// Received returns how many bytes of the request's body were read.
func (x *Exchange) Received() int64 { return x.in.Load() }

// Sent returns how many bytes of the answer's body were sent.
func (x *Exchange) Sent(r *http.Request) int64 {
	if r.Method == http.MethodHead {
		return 0 // net/http drops the body
	}
	return x.out
}

// Unwrap is for http.ResponseController.
func (x *Exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (x *Exchange) WriteHeader(status int) {
	if status >= 200 && x.status == 0 { // not 1xx
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (x *Exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	n, err := x.ResponseWriter.Write(b)
	x.out += int64(n)
	return n, err
}

// Flush implements http.Flusher, for callers without a controller.
func (x *Exchange) Flush() { _ = x.FlushError() } // the next write returns the error

// FlushError is called by http.ResponseController.
func (x *Exchange) FlushError() error {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// countedBody counts the bytes of a request's body.
type countedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}
