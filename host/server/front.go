package server

import (
	"io"
	"net/http"
	"sync/atomic"
)

// front puts around a handler what takes care of the service: the access log, the measurements, and the limit on requests, in this order, so that a
// request that is refused for its rate is measured and logged, too. Each is left out where it is nil or zero.
func front(
	next http.Handler,
	m *metrics,
	l Limits,
	access io.Writer,
	who func(token string) (holder string, ok bool),
) http.Handler {
	return logged(m.measured(l.limited(next, who)), access)
}

// statusGone is the status that is noted for a client that went away before there was an answer.
const statusGone = 499

// exchange is a request and its answer as those see it who watch: how much came in, what went out. Flushing, deadlines and whatever else a
// handler asks of the connection go through to it.
type exchange struct {
	http.ResponseWriter
	in     atomic.Int64 // a body may be read by more than the handler
	body   countedBody
	out    int64
	status int // 0 where there was no answer yet
}

// watch returns what w and r are to be from here on. Layers that watch the same request share one exchange.
func watch(w http.ResponseWriter, r *http.Request) (*exchange, *http.Request) {
	if x, ok := w.(*exchange); ok {
		return x, r
	}
	x := &exchange{ResponseWriter: w}
	x.body.n = &x.in
	if r.Body != nil && r.Body != http.NoBody {
		// In a copy: the server looks at its own request's body to tell whether a client waits to be told to go on.
		copied := *r
		x.body.ReadCloser = r.Body
		copied.Body = &x.body
		r = &copied
	}
	return x, r
}

// code is the status as it is noted, once the handler has come to its end, or has been left in the middle.
func (x *exchange) code(r *http.Request, whole bool) int {
	switch {
	case x.status != 0:
		return x.status
	case r.Context().Err() != nil:
		return statusGone
	case !whole:
		return http.StatusInternalServerError
	default:
		return http.StatusOK // as the server says for a handler that says nothing
	}
}

// sent is how many bytes of the answer's body went out.
func (x *exchange) sent(r *http.Request) int64 {
	if r.Method == http.MethodHead {
		return 0 // they were written, and the server kept them
	}
	return x.out
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader is http.ResponseWriter's.
func (x *exchange) WriteHeader(status int) {
	if status >= 200 && x.status == 0 { // what is below announces an answer
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

// Flush is http.Flusher's, for who asks for it without a controller.
func (x *exchange) Flush() { _ = x.FlushError() } // its next write hears of it

// FlushError is http.ResponseController's.
func (x *exchange) FlushError() error {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// countedBody is a request's body whose bytes are counted.
type countedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}
