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
)

// mostBatch is how many messages the server takes as one, where its config does not say otherwise.
const mostBatch = 1000

// publish puts a frame on a subject that stands at after, and returns its seq.
//
// A message may have been stored though no answer came. As only one append can follow after, it is safe to publish the frame again, and what follows after
// tells whose append it was. An error other than ErrConflict and ErrFull leaves it open.
func (n *Engine) publish(ctx context.Context, s *shard, subject string, after uint64, e *encodedFrame) (uint64, error) {
	if e.count > mostBatch {
		return 0, fmt.Errorf("an append of %d bytes takes %d messages of %d, of which NATS takes no more than %d at once", len(e.body), e.count, e.most, mostBatch)
	}
	within, cancel := context.WithTimeout(ctx, patience+time.Duration(e.count)*time.Second)
	defer cancel()
	doubt := false
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		seq, err := n.publishOnce(within, s, subject, after, e)
		if err == nil {
			return seq, nil
		}
		refused := apiCode(err) == codeWrongLast
		if doubt = doubt || !refused; doubt { // on any error: it costs a question, and spares us to know what each of them leaves undone
			seq, taken, lookErr := n.follower(ctx, s, subject, after, e.id)
			switch {
			case lookErr != nil:
				return 0, fmt.Errorf("append to %s, which may have happened: %w", s.stream, errors.Join(err, lookErr))
			case seq != 0:
				return seq, nil
			case taken:
				refused = true
			case refused:
				return 0, engine.ErrConflict // the stream is gone
			}
		}
		switch {
		case refused:
			return 0, engine.ErrConflict
		case full(err):
			return 0, fmt.Errorf("%w: %w", engine.ErrFull, err)
		case !passing(err) && apiCode(err) != codeWrongLastBusy:
			return 0, fmt.Errorf("append to %s: %w", s.stream, err)
		}
		if !pause(within, wait) {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return 0, fmt.Errorf("append to %s, which may have happened: %w", s.stream, err)
		}
	}
}

// follower looks at the append that follows after: its seq where it is the one with this id, and whether there is any.
func (n *Engine) follower(ctx context.Context, s *shard, subject string, after uint64, id frameID) (seq uint64, taken bool, err error) {
	m, ok, err := n.get(ctx, s, getRequest{Next: subject, Seq: after + 1})
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
	// It is the frame's first message; its last one is what the seq is of.
	err = n.walk(ctx, s, subject, after, m.Seq+mostBatch, mostPage, func(at uint64, f *frame) bool {
		if f.id == id {
			seq = at
		}
		return false
	})
	return seq, true, err
}

// publishOnce publishes a frame, as a batch where it is of more than one message: the server stores all of it or nothing.
func (n *Engine) publishOnce(ctx context.Context, s *shard, subject string, after uint64, e *encodedFrame) (uint64, error) {
	batch := nuid.Next() // another one each time: the server may still have the start of the last try
	for i := range e.count {
		m := &nats.Msg{Subject: subject, Header: nats.Header{}, Data: e.message(i)}
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
		// The server answers to each. Waiting for it keeps its queues short. The last one has it sync them all.
		limit := oneTry
		if last {
			limit += time.Duration(e.count) * oneTry / 20
		}
		seq, err := n.send(ctx, m, limit)
		if err != nil || last {
			return seq, err
		}
	}
	return 0, errFrame // a frame has messages
}

// send publishes a message and returns the seq in the server's answer; 0 where the answer is empty.
func (n *Engine) send(ctx context.Context, m *nats.Msg, limit time.Duration) (uint64, error) {
	try, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := n.conn.RequestMsgWithContext(try, m)
	if err != nil || len(reply.Data) == 0 {
		return 0, err
	}
	var answer struct {
		apiReply
		Seq uint64 `json:"seq"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return 0, fmt.Errorf("answer of %s: %w", m.Subject, err)
	}
	if answer.Error != nil {
		return 0, answer.Error
	}
	return answer.Seq, nil
}
