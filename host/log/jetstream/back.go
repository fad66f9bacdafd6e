package jetstream

import (
	"context"
	"slices"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Widths of the windows by which ReadBack reads. A window has as many messages of the shard, of any stream.
const (
	firstWindow = 64
	mostWindow  = 4096
)

// ReadBack reads windows of the shard forward, the last one first: JetStream reads no subject backwards. The leader
// finds each window, since a replica may lag, and each is wider than the one before. An empty window costs one request
// and doubles the next one without a limit, so that a stream's long gaps take few requests. One with messages is halved
// down to mostWindow, which bounds the messages that are read in vain.
func (n *Engine) ReadBack(
	ctx context.Context, stream string, upTo uint64, count, most int,
) ([]engine.Record, error) {
	x, err := n.find(stream)
	if err != nil {
		return nil, err
	}
	first := func(after uint64) (uint64, bool, error) { // the subject's first message after a seq
		m, ok, err := n.get(ctx, x.shard, getRequest{Next: x.name, Seq: after + 1})
		return m.Seq, ok && m.Seq <= upTo, err
	}
	floor, ok, err := first(0) // no message is before it
	if err != nil || !ok {
		return nil, err
	}
	floor--
	var found [][]engine.Record // of each frame, the last one first
	width := uint64(min(max(count, 1), firstWindow))
	for upTo > floor && count > 0 && most > 0 {
		from := upTo - min(width, upTo-floor)
		_, ok, err := first(from)
		if err != nil {
			return nil, err
		}
		width *= 2
		if !ok {
			upTo = from
			continue
		}
		for upTo-from > mostWindow {
			middle := from + (upTo-from)/2
			switch _, ok, err := first(middle); {
			case err != nil:
				return nil, err
			case ok:
				from = middle
			default:
				upTo = middle
			}
		}
		width = min(width, mostWindow)
		frames, err := x.window(ctx, from, upTo, count, most)
		if err != nil {
			return nil, err
		}
		for _, f := range slices.Backward(frames) {
			if count <= 0 || most <= 0 {
				break
			}
			found = append(found, f)
			count, most = count-len(f), most-sizeOf(f)
		}
		upTo = from
	}
	slices.Reverse(found)
	return slices.Concat(found...), nil
}

// window returns the records of the subject's frames after seq from up to seq upTo, by frame. Of those at its start it
// leaves out what exceeds count records or most bytes.
func (x *subject) window(
	ctx context.Context, from, upTo uint64, count, most int,
) (frames [][]engine.Record, err error) {
	number, size := 0, 0
	err = x.walk(ctx, from, upTo, most, func(seq uint64, f *frame) bool {
		if len(f.records) == 0 {
			return true
		}
		records := f.at(seq)
		frames, number, size = append(frames, records), number+len(records), size+f.size()
		for len(frames) > 1 && number-len(frames[0]) >= count || len(frames) > 1 && size-sizeOf(frames[0]) >= most {
			number, size = number-len(frames[0]), size-sizeOf(frames[0])
			frames[0] = nil
			frames = frames[1:]
		}
		return true
	})
	return frames, err
}
