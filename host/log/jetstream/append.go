package jetstream

import (
	"context"
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Append publishes one frame. Where it is in doubt whether it arrived, the cluster is asked. A frame of many messages takes its time to send, and meets a
// conflict where another server appends to the same stream meanwhile: against one that never pauses it does not get through.
func (n *Engine) Append(ctx context.Context, stream string, a engine.Append) (engine.Head, error) {
	s, subject, err := n.find(stream)
	if err != nil {
		return engine.Head{}, err
	}
	c := n.cache.acquire(stream)
	defer n.cache.release(c)
	before, err := n.standing(ctx, s, subject, c, a.After)
	if err != nil {
		return engine.Head{}, err
	}
	f := &frame{id: newFrameID(), born: before.born, data: before.data, state: a.State, records: a.Records, values: a.Values}
	now, err := n.append(ctx, s, subject, c, before, f)
	if err != nil {
		return engine.Head{}, err
	}
	return now.head(f.state), nil
}

// append publishes f, and takes it up into what is known of the stream.
func (n *Engine) append(ctx context.Context, s *shard, subject string, c *cached, before standing, f *frame) (standing, error) {
	e, err := f.encode(n.room())
	if err != nil {
		return standing{}, err
	}
	seq, err := n.publish(ctx, s, subject, before.last, e)
	if err == nil {
		n.refused.Store(false)
	} else if errors.Is(err, engine.ErrFull) {
		n.refused.Store(true)
	}
	if err != nil {
		return standing{}, err
	}
	now := standingAt(seq, f.born, f.data, len(f.records))
	c.see(now)
	if ix := c.tryLock(); ix != nil {
		if ix.at.last == before.last && ix.at.born == before.born {
			ix.add(seq, f)
			ix.at = now
		}
		c.unlock()
	}
	return now, nil
}

// standing is where a stream stands, by one of its appends. The zero value is that of a stream that doesn't exist.
type standing struct {
	last uint64 // seq of the append
	data uint64 // of the last record
	born uint64 // of the stream's first append: a stream that was made again has another
}

// standingAt is where a stream stands with a frame of so many records at seq.
func standingAt(seq, born, data uint64, records int) standing {
	at := standing{last: seq, data: data, born: born}
	if records > 0 {
		at.data = seq
	}
	if born == 0 {
		at.born = seq
	}
	return at
}

func (at standing) head(state []byte) engine.Head {
	return engine.Head{Last: at.last, Data: at.data, State: state}
}

// standing returns how the stream stood with its append at seq after.
func (n *Engine) standing(ctx context.Context, s *shard, subject string, c *cached, after uint64) (standing, error) {
	if after == 0 {
		return standing{}, nil
	}
	seen, _ := c.seen()
	if seen.last == after {
		return seen, nil
	}
	if seen.last > after {
		return standing{}, engine.ErrConflict
	}
	m, ok, err := n.get(ctx, s, getRequest{Seq: after})
	if err != nil {
		return standing{}, err
	}
	if !ok || m.Subject != subject {
		return standing{}, engine.ErrConflict
	}
	at, _, err := decodeHead(m)
	return at, err
}

// decodeHead reads where a stream stands from its last message.
func decodeHead(m message) (standing, []byte, error) {
	p, err := decodePart(m.Data)
	if err == nil && !p.last {
		err = errFrame
	}
	if err != nil {
		return standing{}, nil, fmt.Errorf("message %d of %s: %w", m.Seq, m.Subject, err)
	}
	return standingAt(m.Seq, p.born, p.data, p.number), p.state, nil
}

// Head is the leader's: a replica can lag behind what was acknowledged. Where the leader may be one that was
// replaced, it is ErrStale.
func (n *Engine) Head(ctx context.Context, stream string) (engine.Head, error) {
	s, subject, err := n.find(stream)
	if err != nil {
		return engine.Head{}, err
	}
	c := n.cache.acquire(stream)
	defer n.cache.release(c)
	at, state, err := n.look(ctx, s, subject, c)
	if err == nil {
		err = n.confirm(ctx, s)
	}
	if err != nil {
		return engine.Head{}, err
	}
	return at.head(state), nil
}

// look asks the leader where the stream stands.
func (n *Engine) look(ctx context.Context, s *shard, subject string, c *cached) (at standing, state []byte, err error) {
	_, before := c.seen()
	m, ok, err := n.get(ctx, s, getRequest{Last: subject})
	if err != nil {
		return at, nil, err
	}
	if !ok {
		c.seeNone(before)
		return at, nil, nil
	}
	if at, state, err = decodeHead(m); err == nil {
		c.see(at)
	}
	return at, state, err
}
