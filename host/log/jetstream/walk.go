package jetstream

import (
	"context"
	"fmt"

	"arbe.0sk.ar/runner/host/log/engine"
)

const (
	pageMessages = 512
	leastPage    = 64 << 10
	mostPage     = 4 << 20 // far below max_pending, at which a server drops a slow client
)

// Read reads from any replica, and what that lacks from the leader.
func (n *Engine) Read(ctx context.Context, stream string, after, upTo uint64, most int) ([]engine.Record, error) {
	s, subject, err := n.find(stream)
	if err != nil {
		return nil, err
	}
	var records []engine.Record
	size := 0
	err = n.walk(ctx, s, subject, after, upTo, most, func(seq uint64, f *frame) bool {
		if size += f.size(); len(records) > 0 && size > most {
			return false
		}
		for _, r := range f.records {
			records = append(records, engine.Record{Seq: seq, At: r.At, Data: r.Data})
		}
		return len(records) == 0 || size < most
	})
	return records, err
}

// walk calls f with the subject's frames after seq after up to seq upTo, until f returns false. A frame with messages
// on both sides of seq after is among them. bytes is the size that the caller expects to read.
func (n *Engine) walk(
	ctx context.Context, s *shard, subject string, after, upTo uint64, bytes int, f func(seq uint64, f *frame) bool,
) error {
	page := min(max(bytes, leastPage), mostPage)
	var join joiner
	begun := false
	for after < upTo {
		q := getRequest{Next: subject, Seq: after + 1, Batch: int(min(pageMessages, upTo-after)), MaxBytes: page}
		if len(join.chunks) > 0 { // the rest of a large frame
			q.MaxBytes = mostPage
		}
		messages, _, err := n.getMany(ctx, s, q)
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			// There are no more messages, or this replica lags behind: ask the leader.
			m, ok, err := n.get(ctx, s, getRequest{Next: subject, Seq: after + 1})
			if err != nil || !ok {
				return err
			}
			messages = append(messages, m)
		}
		if !begun {
			// A caller can name a seq within a frame.
			begun = true
			first, err := startOf(messages[0])
			if err != nil {
				return fmt.Errorf("message %d of %s: %w", messages[0].Seq, s.stream, err)
			}
			if first < messages[0].Seq {
				after = first - 1
				continue
			}
		}
		for _, m := range messages {
			if after = m.Seq; after > upTo {
				return nil
			}
			frame, err := join.add(m.Data)
			if err != nil {
				return fmt.Errorf("message %d of %s: %w", m.Seq, s.stream, err)
			}
			if frame != nil && !f(m.Seq, frame) {
				return nil
			}
		}
	}
	return nil
}

// startOf returns the seq of the first message of m's frame.
func startOf(m message) (uint64, error) {
	p, err := decodePart(m.Data)
	if p.last {
		return firstSeq(m.Seq, p.count), err
	}
	return m.Seq - min(uint64(p.index), m.Seq-1), err
}

// joiner joins messages to frames, in the order of their seqs.
type joiner struct {
	id     frameID
	chunks [][]byte
}

// add returns the frame that a message completes, or nil.
func (j *joiner) add(payload []byte) (*frame, error) {
	p, err := decodePart(payload)
	if err != nil {
		return nil, err
	}
	if p.id != j.id { // a frame without its last message is being removed
		j.id, j.chunks = p.id, nil
	}
	if !p.last {
		if p.index != len(j.chunks) {
			return nil, errFrame
		}
		j.chunks = append(j.chunks, p.chunk)
		return nil, nil
	}
	f, err := p.frame(j.chunks)
	j.chunks = nil
	return f, err
}

// frameAt reads the frame whose last message has this seq, and returns its number of messages. The frame is nil if it
// was removed.
func (n *Engine) frameAt(ctx context.Context, s *shard, subject string, seq uint64) (*frame, int, error) {
	m, ok, err := n.get(ctx, s, getRequest{Seq: seq})
	if err != nil || !ok || m.Subject != subject {
		return nil, 0, err
	}
	p, err := decodePart(m.Data)
	if err != nil {
		return nil, 0, fmt.Errorf("message %d of %s: %w", seq, s.stream, err)
	}
	if !p.last {
		return nil, 0, nil
	}
	if p.count == 1 {
		f, err := p.frame(nil)
		return f, 1, err
	}
	var found *frame
	err = n.walk(ctx, s, subject, firstSeq(seq, p.count)-1, seq, p.size, func(at uint64, f *frame) bool {
		if at == seq {
			found = f
		}
		return true
	})
	return found, p.count, err
}

// firstSeq is the seq of a frame's first message. The messages of a batch have consecutive seqs.
func firstSeq(last uint64, count int) uint64 { return last - min(uint64(count), last) + 1 }
