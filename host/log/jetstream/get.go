package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// message is a message as it stands in a shard.
type message struct {
	Subject string `json:"subject"`
	Seq     uint64 `json:"seq"`
	Data    []byte `json:"data"`
}

// getRequest is a question for messages.
type getRequest struct {
	Seq      uint64   `json:"seq,omitempty"`          // this one, or with Next the first from there on
	Last     string   `json:"last_by_subj,omitempty"` // the last one of the subject
	Next     string   `json:"next_by_subj,omitempty"` // the next ones of the subject
	Lasts    []string `json:"multi_last,omitempty"`   // the last one of each
	Batch    int      `json:"batch,omitempty"`
	MaxBytes int      `json:"max_bytes,omitempty"` // what goes beyond is sent, but nothing after it
}

// get asks the shard's leader for one message. It alone knows all that was acknowledged.
func (n *Engine) get(ctx context.Context, s *shard, q getRequest) (m message, ok bool, err error) {
	var answer struct {
		apiReply
		Message message `json:"message"`
	}
	err = n.ask(ctx, "STREAM.MSG.GET."+s.stream, q, &answer)
	if apiCode(err) == codeNoMessage {
		return message{}, false, nil
	}
	if err != nil {
		return message{}, false, fmt.Errorf("read from %s: %w", s.stream, err)
	}
	return answer.Message, true, nil
}

// getMany asks any replica for q.Batch messages. It may lag behind the leader. upTo is the last seq that it has, where it tells.
func (n *Engine) getMany(ctx context.Context, s *shard, q getRequest) (messages []message, upTo uint64, err error) {
	err = n.patiently(ctx, func(context.Context) error {
		messages, upTo, err = n.tryMany(ctx, s, q)
		return err
	})
	if err != nil {
		err = fmt.Errorf("read from %s: %w", s.stream, err)
	}
	return messages, upTo, err
}

func (n *Engine) tryMany(ctx context.Context, s *shard, q getRequest) (messages []message, upTo uint64, err error) {
	answers := make(chan *nats.Msg, q.Batch+1) // has room for all of them: what finds none is dropped
	inbox := n.conn.NewInbox()
	sub, err := n.conn.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if e := sub.Unsubscribe(); err == nil && !errors.Is(e, nats.ErrConnectionClosed) {
			err = e
		}
	}()
	body, err := json.Marshal(q)
	if err != nil {
		return nil, 0, err
	}
	if err := n.conn.PublishRequest(jsAPI+"DIRECT.GET."+s.stream, inbox, body); err != nil {
		return nil, 0, err
	}
	quiet := time.NewTimer(oneTry)
	defer quiet.Stop()
	for {
		var m *nats.Msg
		select {
		case m = <-answers:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-quiet.C:
			return nil, 0, nats.ErrTimeout
		}
		quiet.Reset(oneTry)
		switch status := m.Header.Get("Status"); status {
		case "":
			seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
			if err != nil {
				return nil, 0, fmt.Errorf("a message without a seq: %w", err)
			}
			messages = append(messages, message{Subject: m.Header.Get("Nats-Subject"), Seq: seq, Data: m.Data})
		case "204": // these were all
			upTo, _ = strconv.ParseUint(m.Header.Get("Nats-UpTo-Sequence"), 10, 64) // 0 where it is not told
			return messages, upTo, nil
		case "404": // there is none
			return nil, 0, nil
		case "503":
			return nil, 0, nats.ErrNoResponders
		default:
			return nil, 0, fmt.Errorf("%s %s", status, m.Header.Get("Description"))
		}
	}
}
