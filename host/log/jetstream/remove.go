package jetstream

import (
	"context"
	"errors"
	"fmt"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"arbe.0sk.ar/runner/host/log/engine"
)

// removeAtOnce is how many appends are removed with one append that replaces them.
const removeAtOnce = 500

// Remove removes whole appends, but not the stream's last one: the records of an append share its seq.
//
// It first appends a frame without records, which has the keys of the removed records, and the present values of the
// names that their appends had set. An engine that reads the stream later still learns them.
func (n *Engine) Remove(ctx context.Context, stream string, seqs []uint64) error {
	x, err := n.use(stream)
	if err != nil {
		return err
	}
	defer x.release()
	defer n.forget(stream)
	for len(seqs) > 0 {
		some := seqs[:min(len(seqs), removeAtOnce)]
		seqs = seqs[len(some):]
		if err := x.removeSome(ctx, some); err != nil {
			return fmt.Errorf("remove from %s: %w", x.shard.stream, err)
		}
	}
	return nil
}

func (x *subject) removeSome(ctx context.Context, seqs []uint64) error {
	at, _, err := x.look(ctx)
	if err != nil {
		return err
	}
	left := frame{values: map[string][]byte{}, gone: map[keyHash]uint64{}}
	counts := map[uint64]int{} // of each frame's messages
	for _, seq := range seqs {
		if seq >= at.last {
			continue
		}
		f, count, err := x.frameAt(ctx, seq)
		if err != nil {
			return err
		}
		if f == nil || len(f.records) == 0 {
			continue
		}
		counts[seq] = count
		for _, r := range f.records {
			if r.Key != "" {
				left.gone[hashKey(r.Key)] = seq
			}
		}
		for name := range f.values {
			left.values[name] = nil
		}
	}
	if len(left.gone)+len(left.values) > 0 {
		if err := x.leave(ctx, &left); err != nil {
			return err
		}
	}
	for seq, count := range counts {
		// The last message goes first: without it the others are ignored.
		for at := seq; at >= firstSeq(seq, count); at-- {
			if err := x.removeMessage(ctx, x.shard, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave appends f, which has keys and the names of values, with the values.
func (x *subject) leave(ctx context.Context, f *frame) error {
	for range 100 { // other engines may append
		at, state, err := x.look(ctx)
		if err != nil || at.last == 0 {
			return err
		}
		ix, err := x.fresh(ctx)
		if err != nil {
			return err
		}
		same := ix.at == at
		for name := range f.values {
			f.values[name] = ix.values[name]
		}
		x.cached.unlock()
		if !same {
			continue
		}
		f.id, f.born, f.data, f.state = newFrameID(), at.born, at.data, state
		if _, err = x.append(ctx, at, f); !errors.Is(err, engine.ErrConflict) {
			return err
		}
	}
	return engine.ErrConflict
}

// removeMessage deletes a message. It is no error if there is none.
func (n *Engine) removeMessage(ctx context.Context, s *shard, seq uint64) error {
	var answer apiReply
	err := n.ask(ctx, "STREAM.MSG.DELETE."+s.stream, map[string]any{"seq": seq, "no_erase": true}, &answer)
	var api *natsjs.APIError
	if errors.As(err, &api) {
		if _, ok, lookErr := n.get(ctx, s, getRequest{Seq: seq}); lookErr == nil && !ok {
			return nil
		}
	}
	return err
}

// Delete purges the subject up to its present last append. If the answer is lost, Delete repeats the purge, which
// deletes nothing that was appended since.
func (n *Engine) Delete(ctx context.Context, stream string) error {
	x, err := n.use(stream)
	if err != nil {
		return err
	}
	defer x.release()
	defer n.forget(stream)
	at, _, err := x.look(ctx)
	if err != nil || at.last == 0 {
		return err
	}
	_, before := x.cached.seen()
	if err := x.purge(ctx, at.last+1); err != nil {
		return err
	}
	x.cached.seeNone(before)
	return nil
}

// purge deletes a subject's messages before a seq.
func (x *subject) purge(ctx context.Context, before uint64) error {
	var answer apiReply
	request := map[string]any{"filter": x.name, "seq": before}
	if err := x.ask(ctx, "STREAM.PURGE."+x.shard.stream, request, &answer); err != nil {
		return fmt.Errorf("delete from %s: %w", x.shard.stream, err)
	}
	return nil
}

// Retire leaves one message in the subject, a frame without records and state. All but the stream's last append are
// purged before it is published, so that a Retire which is interrupted leaves nothing of the content behind it.
func (n *Engine) Retire(ctx context.Context, stream string) error {
	x, err := n.use(stream)
	if err != nil {
		return err
	}
	defer x.release()
	defer n.forget(stream)
	for range 100 { // other engines may append
		at, state, err := x.look(ctx)
		if err != nil || !at.head(state).Exists() {
			return err
		}
		if err := x.purge(ctx, at.last); err != nil {
			return err
		}
		e, err := (&frame{id: newFrameID()}).encode(n.room())
		if err != nil {
			return err
		}
		seq, err := x.publish(ctx, at.last, e)
		if errors.Is(err, engine.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		x.cached.see(positionAfter(seq, 0, 0, 0)) // born here: an index of the earlier stream does not fit
		return x.purge(ctx, seq)
	}
	return engine.ErrConflict
}
