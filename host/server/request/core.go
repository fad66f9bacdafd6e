// Package request has the parts of a request that all handlers of a server share: who may make it, its body,
// how much it may hold and post, and its answer, also where it fails.
//
// Handlers return errors. What a log refuses is a type or value of package log, and ProblemOf has the status, the
// headers and the message of each.
package request

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/server/metrics"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Core is shared by all handlers of a server. Its fields must not change while it serves.
type Core struct {
	Log    *log.Log
	Tokens *token.Verifier
	// Doors decide what members of houses may open; nil for a server without houses.
	Doors *member.Doors
	// Insecure serves the Durable Streams protocol without tokens.
	Insecure bool

	// Harnesses are those whose lines threads take; nil for session's list.
	Harnesses session.List

	Budget  *memory.Budget
	Posted  *Limiter // of the bytes that the holder of a token may post; nil without a quota
	Metrics *metrics.Set

	LongPoll time.Duration   // how long a reader waits for a change
	Closing  context.Context // when it is done, waits of readers end
	Logger   *slog.Logger
}

// ReadChunk is how many bytes are read from the log at once for one reader.
const ReadChunk = 1 << 20

// Lease returns a lease for the holder of a grant; without one, for the request's address.
func (c *Core) Lease(r *http.Request, g token.Grant) *memory.Lease {
	if who := g.Holder(); who != "" {
		return c.Budget.Lease(who)
	}
	return c.Budget.Lease("address " + network(r.RemoteAddr).String())
}

// AnswerBuffer is how many bytes of an answer are written at once.
const AnswerBuffer = 64 << 10

// Answer returns a buffer for an answer of some size. It keeps its first error, which means that the reader is gone or
// too slow.
func (c *Core) Answer(ctx context.Context, w http.ResponseWriter, size int) *bufio.Writer {
	return bufio.NewWriterSize(&reader{ctx, w, c.Metrics}, min(size, AnswerBuffer))
}

// MadeStatus is the status of an answer about what this request has made, or an earlier one.
func MadeStatus(made bool) int {
	if made {
		return http.StatusCreated
	}
	return http.StatusOK
}

// WriteJSON answers with a value that is no content of the log. The client may be gone.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", JSON)
	w.WriteHeader(status)
	_, _ = w.Write(append(thread.Marshal(v), '\n'))
}

// AnswerJSON answers with a value of the log, whose bytes count as read. The client may be gone.
func (c *Core) AnswerJSON(ctx context.Context, w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", JSON)
	b := thread.Marshal(v)
	out := c.Answer(ctx, w, len(b)+1)
	_, _ = out.Write(append(b, '\n'))
	_ = out.Flush()
}

// reader counts the bytes for a reader, and a reader that is too slow.
type reader struct {
	ctx context.Context
	w   io.Writer
	m   *metrics.Set
}

// Write implements io.Writer.
func (r *reader) Write(b []byte) (int, error) {
	n, err := r.w.Write(b)
	r.m.Sent(n)
	if err != nil && r.ctx.Err() == nil {
		r.m.Dropped()
	}
	return n, err
}
