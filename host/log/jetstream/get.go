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

// message is a message of a shard.
type message struct {
	Subject string `json:"subject"`
	Seq     uint64 `json:"seq"`
	Data    []byte `json:"data"`
}

// getRequest selects messages.
type getRequest struct {
	Seq      uint64   `json:"seq,omitempty"`          // of one message, or with Next of the first that may be returned
	Last     string   `json:"last_by_subj,omitempty"` // the last message of this subject
	Next     string   `json:"next_by_subj,omitempty"` // the next messages of this subject
	Lasts    []string `json:"multi_last,omitempty"`   // the last message of each subject
	Batch    int      `json:"batch,omitempty"`
	MaxBytes int      `json:"max_bytes,omitempty"` // the message that exceeds it is the last one sent
}

// get reads one message from the shard's leader, which alone is sure to have all acknowledged messages.
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

// getMany reads q.Batch messages from any replica, which may lag behind the leader. upTo is the replica's last seq, 0
// if it did not send that.
func (n *Engine) getMany(ctx context.Context, s *shard, q getRequest) (messages []message, upTo uint64, err error) {
	err = n.retry(ctx, func(limit time.Duration) error {
		messages = nil
		upTo, err = n.tryMany(ctx, limit, s, q, func(m message) (bool, error) {
			messages = append(messages, m)
			return true, nil
		})
		return err
	})
	if err != nil {
		err = fmt.Errorf("read from %s: %w", s.stream, err)
	}
	return messages, upTo, err
}

// tryMany asks for messages once, and calls f for each as it arrives, until f returns false or an error. An error may
// come after some messages: for example if no next one comes within limit. The next one is the one that follows them:
// no message is left out.
func (n *Engine) tryMany(
	ctx context.Context, limit time.Duration, s *shard, q getRequest, f func(message) (bool, error),
) (upTo uint64, err error) {
	answers := make(chan *nats.Msg, q.Batch+1) // room for all of them: the client drops what it has no room for
	inbox := n.conn.NewInbox()
	sub, err := n.conn.ChanSubscribe(inbox, answers)
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := sub.Unsubscribe(); err == nil && !errors.Is(e, nats.ErrConnectionClosed) {
			err = e
		}
	}()
	body, err := json.Marshal(q)
	if err != nil {
		return 0, err
	}
	if err := n.conn.PublishRequest(jsAPI+"DIRECT.GET."+s.stream, inbox, body); err != nil {
		return 0, err
	}
	began := time.Now()
	quiet := time.NewTimer(limit)
	defer quiet.Stop()
	for last := uint64(0); ; {
		var m *nats.Msg
		select {
		case m = <-answers:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-quiet.C:
			return 0, nats.ErrTimeout
		}
		if quiet.Reset(limit); last == 0 {
			n.timeouts.answered(time.Now(), time.Since(began))
		}
		switch status := m.Header.Get("Status"); status {
		case "", "204":
			// Each message names the one before it in the answer, and so does the end. One can be missing where the
			// connection broke and was made again meanwhile.
			if before := m.Header.Get("Nats-Last-Sequence"); before != strconv.FormatUint(last, 10) {
				return 0, errGap
			}
			if status != "" { // the end
				upTo, _ = strconv.ParseUint(m.Header.Get("Nats-UpTo-Sequence"), 10, 64) // 0 if there is none
				return upTo, nil
			}
			if last, err = strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64); err != nil {
				return 0, fmt.Errorf("message without a seq: %w", err)
			}
			more, err := f(message{Subject: m.Header.Get("Nats-Subject"), Seq: last, Data: m.Data})
			if err != nil || !more {
				return 0, err
			}
		case "404": // no messages
			return 0, nil
		case "503":
			return 0, nats.ErrNoResponders
		default:
			return 0, fmt.Errorf("%s %s", status, m.Header.Get("Description"))
		}
	}
}
