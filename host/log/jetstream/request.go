package jetstream

// The requests to JetStream are written by hand, over nats.go's core connection. The package jetstream of nats.go
// 1.55.0 can configure a stream for atomic batches (AllowAtomicPublish), but has no call that publishes one, and none
// that reads many messages with one request (batch, multi_last). nats-server has both, since 2.12 and 2.11. An append
// also needs the error code of each refusal, and no retry by the client library. Of nats.go's jetstream only types are
// used. See ADR-31 (direct get) and ADR-50 (atomic batch publish) of nats-io/nats-architecture-and-design.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"arbe.0sk.ar/runner/internal/pause"
)

const jsAPI = "$JS.API."

// Error codes of nats-server, from its errors.json.
const (
	codeNoMessage     = 10037
	codeWrongLast     = 10071 // the subject's last seq is not the expected one
	codeWrongLastBusy = 10164 // another append to the subject is in progress
	codeStoreFailed   = 10077 // mostly a limit of the stream
	codeTooManyNow    = 10167
	codeIncomplete    = 10176 // batch: a new leader, or a timeout
	codeTooManyBatch  = 10210
)

// apiReply is the part that all answers of JetStream have.
type apiReply struct {
	Error *natsjs.APIError `json:"error"`
}

// failer is an answer of JetStream: it embeds apiReply.
type failer interface{ failure() *natsjs.APIError }

func (r *apiReply) failure() *natsjs.APIError { return r.Error }

// ask sends a request to JetStream, and repeats it until there is an answer. The request must be idempotent.
func (n *Engine) ask(ctx context.Context, subject string, request any, answer failer) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return n.retry(ctx, func(limit time.Duration) error {
		try, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		began := time.Now()
		m, err := n.conn.RequestWithContext(try, jsAPI+subject, body)
		if err != nil {
			return err
		}
		n.timeouts.answered(time.Now(), time.Since(began))
		if err := json.Unmarshal(m.Data, answer); err != nil {
			return fmt.Errorf("answer to %s: %w", subject, err)
		}
		if err := answer.failure(); err != nil {
			return err
		}
		return nil
	})
}

// retry calls f, which waits for each answer for at most limit, until f succeeds or fails for good, or the request's
// time is over.
func (n *Engine) retry(ctx context.Context, f func(limit time.Duration) error) error {
	began := time.Now()
	for i, wait := 0, firstWait; ; i, wait = i+1, min(2*wait, lastWait) {
		now := time.Now()
		err := f(min(n.timeouts.try(now, i), max(n.timeouts.request(now)-now.Sub(began), wait)))
		if err == nil || !temporary(err) {
			return err
		}
		if took, all := time.Since(began), n.timeouts.request(time.Now()); took+wait > all {
			return fmt.Errorf("no answer within %s: %w", all, err)
		}
		if !pause.For(ctx, wait) {
			return ctx.Err()
		}
	}
}

// temporary reports whether an error may be due to a server that is gone, or to the election of a leader.
func temporary(err error) bool {
	for _, e := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrReconnectBufExceeded,
		nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrStaleConnection, errAgain, errGap,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	switch apiCode(err) {
	case codeTooManyNow, codeIncomplete, codeTooManyBatch:
		return true
	}
	var api *natsjs.APIError
	return errors.As(err, &api) && api.Code == 503 && !full(err)
}

// errAgain is the error of a read that a concurrent change has overtaken.
var errAgain = errors.New("the stream changes too fast")

// full reports whether an error means that a server's disk, the account or the stream is full.
func full(err error) bool {
	switch apiCode(err) {
	case 10002, 10023, 10028, 10047, codeStoreFailed:
		return true
	}
	return false
}

// apiCode is the server's error code; 0 if there is none.
func apiCode(err error) int {
	var api *natsjs.APIError
	if errors.As(err, &api) {
		return int(api.ErrorCode)
	}
	return 0
}
