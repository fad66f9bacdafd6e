package jetstream

import (
	"context"
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Append publishes one frame. If it is in doubt whether the frame arrived, Append asks the cluster. A frame of many
// messages takes time to send, and conflicts with any append of another server meanwhile: against a server that appends
// without pause it never succeeds.
func (n *Engine) Append(ctx context.Context, stream string, a engine.Append) (engine.Head, error) {
	x, err := n.use(stream)
	if err != nil {
		return engine.Head{}, err
	}
	defer x.release()
	before, err := x.positionAt(ctx, a.After)
	if err != nil {
		return engine.Head{}, err
	}
	f := &frame{
		id: newFrameID(), born: before.born, data: before.data, state: a.State, records: a.Records, values: a.Values,
	}
	now, err := x.append(ctx, before, f)
	if err != nil {
		return engine.Head{}, err
	}
	return now.head(f.state), nil
}

// append publishes f, and adds it to the cached index.
func (x *subject) append(ctx context.Context, before position, f *frame) (position, error) {
	e, err := f.encode(x.room())
	if err != nil {
		return position{}, err
	}
	seq, err := x.publish(ctx, before.last, e)
	if err == nil || errors.Is(err, engine.ErrFull) {
		x.refused.Store(err != nil)
	}
	if err != nil {
		return position{}, err
	}
	now := positionAfter(seq, f.born, f.data, len(f.records))
	x.cached.see(now)
	if ix := x.cached.tryLock(); ix != nil {
		if ix.at.last == before.last && ix.at.born == before.born {
			ix.add(seq, f)
			ix.at = now
		}
		x.cached.unlock()
	}
	return now, nil
}

// position is a stream's head without its state. The zero value is that of a stream that doesn't exist.
type position struct {
	last uint64 // seq of the append
	data uint64 // of the last record
	born uint64 // of the stream's first append: a stream that is created again has another
}

// positionAfter is the position after a frame of records records at seq.
func positionAfter(seq, born, data uint64, records int) position {
	at := position{last: seq, data: data, born: born}
	if records > 0 {
		at.data = seq
	}
	if born == 0 {
		at.born = seq
	}
	return at
}

func (at position) head(state []byte) engine.Head {
	return engine.Head{Last: at.last, Data: at.data, State: state}
}

// positionAt returns the position of the stream after its append at seq after.
func (x *subject) positionAt(ctx context.Context, after uint64) (position, error) {
	if after == 0 {
		return position{}, nil
	}
	seen, _ := x.cached.seen()
	if seen.last == after {
		return seen, nil
	}
	if seen.last > after {
		return position{}, engine.ErrConflict
	}
	m, ok, err := x.get(ctx, x.shard, getRequest{Seq: after})
	if err != nil {
		return position{}, err
	}
	if !ok || m.Subject != x.name {
		return position{}, engine.ErrConflict
	}
	at, _, err := decodeHead(m)
	return at, err
}

// decodeHead decodes the head of a stream from its last message.
func decodeHead(m message) (position, []byte, error) {
	p, err := decodePart(m.Data)
	if err == nil && !p.last {
		err = errFrame
	}
	if err != nil {
		return position{}, nil, fmt.Errorf("message %d of %s: %w", m.Seq, m.Subject, err)
	}
	return positionAfter(m.Seq, p.born, p.data, p.number), p.state, nil
}

// Head asks the leader: a replica may lack acknowledged appends. If another leader may have replaced it, the error is
// engine.ErrStale.
func (n *Engine) Head(ctx context.Context, stream string) (engine.Head, error) {
	x, err := n.use(stream)
	if err != nil {
		return engine.Head{}, err
	}
	defer x.release()
	at, state, err := x.look(ctx)
	if err == nil {
		err = n.confirm(ctx, x.shard)
	}
	if err != nil {
		return engine.Head{}, err
	}
	return at.head(state), nil
}

// look asks the leader for the stream's position and state.
func (x *subject) look(ctx context.Context) (at position, state []byte, err error) {
	_, before := x.cached.seen()
	m, ok, err := x.get(ctx, x.shard, getRequest{Last: x.name})
	if err != nil {
		return at, nil, err
	}
	if !ok {
		x.cached.seeNone(before)
		return at, nil, nil
	}
	if at, state, err = decodeHead(m); err == nil {
		x.cached.see(at)
	}
	return at, state, err
}
