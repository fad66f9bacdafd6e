package jetstream

import (
	"context"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

const (
	pageMessages = 4096
	leastPage    = 64 << 10
	mostPage     = 4 << 20 // far below max_pending, at which a server drops a slow client
)

// Read reads from any replica, and what that lacks from the leader. It returns what one request has read if that is
// half of most: another request would read a whole page, of which a part were left over.
func (n *Engine) Read(ctx context.Context, stream string, after, upTo uint64, most int) ([]engine.Record, error) {
	x, err := n.find(stream)
	if err != nil {
		return nil, err
	}
	var records []engine.Record
	w := walker{subject: x, after: after, upTo: upTo}
	size, full := 0, false
	for !full && w.after < upTo && size <= most/2 {
		found, err := w.page(ctx, most, func(seq uint64, f *frame) bool {
			if size += f.size(); len(records) > 0 && size > most {
				full = true
				return false
			}
			records = append(records, f.at(seq)...)
			full = len(records) > 0 && size >= most
			return !full
		})
		if err != nil {
			return nil, err
		}
		if !found {
			break
		}
	}
	return records, nil
}

// walk calls f with the subject's frames after seq after up to seq upTo, until f returns false. A frame with messages
// on both sides of seq after is among them. bytes is the size that the caller expects to read.
func (x *subject) walk(
	ctx context.Context, after, upTo uint64, bytes int, f func(seq uint64, f *frame) bool,
) error {
	w := walker{subject: x, after: after, upTo: upTo}
	for more := true; more && w.after < upTo; {
		found, err := w.page(ctx, bytes, func(seq uint64, frame *frame) bool {
			more = f(seq, frame)
			return more
		})
		if err != nil || !found {
			return err
		}
	}
	return nil
}

// walker reads a subject's frames in order.
type walker struct {
	*subject
	after, upTo uint64 // after is the seq of the last message read
	join        joiner
	begun       bool // the first message is read
}

// page calls f with the frames of one request's messages, as they arrive, until f returns false. found is false if
// there are no more messages up to upTo.
func (w *walker) page(ctx context.Context, bytes int, f func(seq uint64, f *frame) bool) (found bool, err error) {
	bytes = min(max(bytes, leastPage), mostPage)
	if len(w.join.chunks) > 0 { // the rest of a large frame
		bytes = mostPage
	}
	back := false
	add := func(m message) (bool, error) {
		if !w.begun { // a caller can name a seq within a frame
			w.begun = true
			first, err := startOf(m)
			if err != nil {
				return false, fmt.Errorf("message %d: %w", m.Seq, err)
			}
			if back = first < m.Seq; back {
				w.after = first - 1
				return false, nil
			}
		}
		if w.after = m.Seq; w.after > w.upTo {
			return false, nil
		}
		found = true
		frame, err := w.join.add(m.Data)
		if err != nil {
			return false, fmt.Errorf("message %d: %w", m.Seq, err)
		}
		return frame == nil || f(m.Seq, frame), nil
	}
	err = w.retry(ctx, func(limit time.Duration) error { // after a failure it continues behind the last message read
		if w.after >= w.upTo {
			return nil
		}
		q := getRequest{Next: w.name, Seq: w.after + 1, MaxBytes: bytes}
		q.Batch = int(min(w.upTo-w.after, pageMessages)) // there are no more up to upTo
		_, err := w.tryMany(ctx, limit, w.shard, q, add)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("read from %s: %w", w.shard.stream, err)
	}
	if back {
		return w.page(ctx, bytes, f)
	}
	if found || w.after > w.upTo {
		return found, nil
	}
	// There are no more messages, or this replica lags behind: ask the leader.
	m, ok, err := w.get(ctx, w.shard, getRequest{Next: w.name, Seq: w.after + 1})
	if err != nil || !ok {
		return false, err
	}
	if _, err = add(m); err != nil {
		return false, fmt.Errorf("read from %s: %w", w.shard.stream, err)
	}
	if back {
		return w.page(ctx, bytes, f)
	}
	return found, nil
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
func (x *subject) frameAt(ctx context.Context, seq uint64) (*frame, int, error) {
	m, ok, err := x.get(ctx, x.shard, getRequest{Seq: seq})
	if err != nil || !ok || m.Subject != x.name {
		return nil, 0, err
	}
	p, err := decodePart(m.Data)
	if err != nil {
		return nil, 0, fmt.Errorf("message %d of %s: %w", seq, x.shard.stream, err)
	}
	if !p.last {
		return nil, 0, nil
	}
	if p.count == 1 {
		f, err := p.frame(nil)
		return f, 1, err
	}
	var found *frame
	err = x.walk(ctx, firstSeq(seq, p.count)-1, seq, p.size, func(at uint64, f *frame) bool {
		if at == seq {
			found = f
		}
		return true
	})
	return found, p.count, err
}

// firstSeq is the seq of a frame's first message. The messages of a batch have consecutive seqs.
func firstSeq(last uint64, count int) uint64 { return last - min(uint64(count), last) + 1 }
