package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/pause"
)

// mostBatch is how many messages nats-server accepts as one batch by default.
const mostBatch = 1000

// publish appends a frame to a subject whose last seq is after, and returns the frame's seq.
//
// A message may be stored although no answer came. Only one append can follow after, so that it is safe to publish the
// frame again, and the append that follows after shows by its id whether it is this one. After an error other than
// ErrConflict and ErrFull, the append may or may not have happened.
func (x *subject) publish(ctx context.Context, after uint64, e *encodedFrame) (uint64, error) {
	if e.count > mostBatch {
		return 0,
			fmt.Errorf("an append of %d bytes needs %d messages of %d bytes: NATS accepts no more than %d at once",
				len(e.body), e.count, e.most, mostBatch)
	}
	began, doubt := time.Now(), false
	left := func() time.Duration {
		now := time.Now()
		return x.timeouts.publish(now, e.count) - now.Sub(began)
	}
	for i, wait := 0, firstWait; ; i, wait = i+1, min(2*wait, lastWait) {
		seq, err := x.publishOnce(ctx, after, e, func() time.Duration {
			return min(x.timeouts.try(time.Now(), i), left())
		})
		if err == nil {
			return seq, nil
		}
		refused := apiCode(err) == codeWrongLast
		// after any other error: a read is simpler than a list of what each implies
		if doubt = doubt || !refused; doubt {
			seq, taken, lookErr := x.follower(ctx, after, e.id)
			switch {
			case lookErr != nil:
				return 0, x.maybe(errors.Join(err, lookErr))
			case seq != 0:
				return seq, nil
			case taken:
				refused = true
			case refused:
				return 0, engine.ErrConflict // the stream was deleted
			}
		}
		switch {
		case refused:
			return 0, engine.ErrConflict
		case full(err):
			return 0, fmt.Errorf("%w: %w", engine.ErrFull, err)
		case !temporary(err) && apiCode(err) != codeWrongLastBusy:
			return 0, fmt.Errorf("append to %s: %w", x.shard.stream, err)
		}
		over := left() < wait
		if !over && !pause.For(ctx, wait) {
			over, err = true, ctx.Err()
		}
		if over {
			return 0, x.maybe(err)
		}
	}
}

// maybe returns the error of an append that may have happened.
func (x *subject) maybe(err error) error {
	return fmt.Errorf("append to %s, which may have happened: %w", x.shard.stream, err)
}

// follower returns the seq of the append that follows after if it has this id, else 0, and whether there is one at all.
func (x *subject) follower(ctx context.Context, after uint64, id frameID) (seq uint64, taken bool, err error) {
	m, ok, err := x.get(ctx, x.shard, getRequest{Next: x.name, Seq: after + 1})
	if err != nil || !ok {
		return 0, false, err
	}
	p, err := decodePart(m.Data)
	if err != nil || p.id != id {
		return 0, true, err
	}
	if p.last {
		return m.Seq, true, nil
	}
	// This is the first message of a frame, whose seq is that of its last message.
	err = x.walk(ctx, after, m.Seq+mostBatch, mostPage, func(at uint64, f *frame) bool {
		if f.id == id {
			seq = at
		}
		return false
	})
	return seq, true, err
}

// publishOnce publishes a frame, as an atomic batch if it has more than one message. It waits for each answer for at
// most limit.
func (x *subject) publishOnce(
	ctx context.Context, after uint64, e *encodedFrame, limit func() time.Duration,
) (uint64, error) {
	batch := nuid.Next() // new for each try: the server may still hold the start of the last one
	for i := range e.count {
		m := &nats.Msg{Subject: x.name, Header: nats.Header{}, Data: e.message(i)}
		if i == 0 {
			m.Header["Nats-Expected-Last-Subject-Sequence"] = []string{strconv.FormatUint(after, 10)}
		}
		if e.count > 1 {
			m.Header["Nats-Batch-Id"] = []string{batch}
			m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		}
		last := i == e.count-1
		if last && e.count > 1 {
			m.Header["Nats-Batch-Commit"] = []string{"1"}
		}
		// The server answers each message. To wait keeps its queues short. With the last message it syncs them all.
		wait := limit()
		if last {
			wait += time.Duration(e.count) * wait / 20
		}
		seq, err := x.send(ctx, m, wait)
		if err != nil || last {
			return seq, err
		}
	}
	return 0, errFrame // a frame has messages
}

// send publishes a message and returns the seq in the server's answer; 0 if the answer is empty.
func (n *Engine) send(ctx context.Context, m *nats.Msg, limit time.Duration) (uint64, error) {
	try, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	reply, err := n.conn.RequestMsgWithContext(try, m)
	if err != nil {
		return 0, err
	}
	n.timeouts.answered(time.Now(), time.Since(began))
	if len(reply.Data) == 0 {
		return 0, nil
	}
	var answer struct {
		apiReply
		Seq uint64 `json:"seq"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return 0, fmt.Errorf("answer to a message of %s: %w", m.Subject, err)
	}
	if answer.Error != nil {
		return 0, answer.Error
	}
	return answer.Seq, nil
}
