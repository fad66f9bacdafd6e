package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

const jsAPI = "$JS.API."

// What the server's error codes mean to us. They are in errors.json of nats-server.
const (
	codeNoMessage     = 10037
	codeWrongLast     = 10071 // the subject does not stand where it was expected to
	codeWrongLastBusy = 10164 // another append to the subject is on its way
	codeStoreFailed   = 10077 // by a limit of the stream, mostly
	codeTooManyNow    = 10167
	codeIncomplete    = 10176 // batch: the leader has changed meanwhile, or took too long
	codeTooManyBatch  = 10210
)

// apiReply is part of every answer of JetStream.
type apiReply struct {
	Error *natsjs.APIError `json:"error"`
}

func (r *apiReply) failure() *natsjs.APIError { return r.Error }

// ask puts a question to JetStream, until there is an answer: it is to be one that can be put twice.
func (n *Engine) ask(ctx context.Context, subject string, question any, answer interface{ failure() *natsjs.APIError }) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	return n.patiently(ctx, func(ctx context.Context) error {
		m, err := n.conn.RequestWithContext(ctx, jsAPI+subject, body)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(m.Data, answer); err != nil {
			return fmt.Errorf("answer to %s: %w", subject, err)
		}
		if err := answer.failure(); err != nil {
			return err
		}
		return nil
	})
}

// patiently calls f again for as long as its error is one that passes by itself, within patience.
func (n *Engine) patiently(ctx context.Context, f func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		try, cancel := context.WithTimeout(within, oneTry)
		err := f(try)
		cancel()
		if err == nil || !passing(err) {
			return err
		}
		if !pause(within, wait) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("no answer within %s: %w", patience, err)
		}
	}
}

// pause waits, and reports whether ctx is not done.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// passing reports whether what failed may do so only because a server is away or a leader is being elected.
func passing(err error) bool {
	for _, e := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrReconnectBufExceeded, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrStaleConnection, errAgain,
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

// errAgain is for what is to be tried once more.
var errAgain = errors.New("not yet")

// full reports whether there is no room, by the servers' disks or by a limit of the account or the stream.
func full(err error) bool {
	switch apiCode(err) {
	case 10002, 10023, 10028, 10047, codeStoreFailed:
		return true
	}
	return false
}

// apiCode is the server's error code; 0 where there is none.
func apiCode(err error) int {
	var api *natsjs.APIError
	if errors.As(err, &api) {
		return int(api.ErrorCode)
	}
	return 0
}
