package server

import (
	"io"
	"net/http"
	"sync/atomic"
)

// front adds the access log, the measurements and the limit on requests to a handler, in this order, so that a refused
// request is logged and measured. Each is left out where it is nil or zero.
func front(
	next http.Handler,
	m *metrics,
	l Limits,
	access io.Writer,
	who func(token string) (holder string, ok bool),
) http.Handler {
	return logged(m.measured(l.limited(next, who)), access)
}

// statusGone is the logged status of a request whose client went away before an answer.
const statusGone = 499

// exchange counts a request and its answer. Flush, deadlines and other requests to the connection go through it.
type exchange struct {
	http.ResponseWriter
	in     atomic.Int64 // net/http reads the rest of a body, too
	body   countedBody
	out    int64
	status int // 0 before the answer
}

// watch wraps w and r in an exchange. Layers around one request share it.
func watch(w http.ResponseWriter, r *http.Request) (*exchange, *http.Request) {
	if x, ok := w.(*exchange); ok {
		return x, r
	}
	x := &exchange{ResponseWriter: w}
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

// code returns the status to log. whole: the handler has returned.
func (x *exchange) code(r *http.Request, whole bool) int {
	switch {
	case x.status != 0:
		return x.status
	case r.Context().Err() != nil:
		return statusGone
	case !whole:
		return http.StatusInternalServerError
	default:
		return http.StatusOK // net/http's default
	}
}

// sent returns how many bytes of the answer's body were sent.
func (x *exchange) sent(r *http.Request) int64 {
	if r.Method == http.MethodHead {
		return 0 // net/http drops the body
	}
	return x.out
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader is http.ResponseWriter's.
func (x *exchange) WriteHeader(status int) {
	if status >= 200 && x.status == 0 { // not 1xx
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write is http.ResponseWriter's.
func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	n, err := x.ResponseWriter.Write(b)
	x.out += int64(n)
	return n, err
}

// Flush is http.Flusher's, for callers without a controller.
func (x *exchange) Flush() { _ = x.FlushError() } // the next write returns the error

// FlushError is http.ResponseController's.
func (x *exchange) FlushError() error {
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
