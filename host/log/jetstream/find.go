package jetstream

import (
	"context"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Bounds of the reads that look for a record near the ends of a stream.
const (
	startBytes  = 128 << 10
	endBytes    = 1 << 20
	endMessages = 256 // of the shard, of any stream
)

// Find is Lookup for a caller that appends nothing. Of a stream whose keys are not cached it reads a part at the start
// and one at the end first: a run's prompt and its end are mostly there. Only if the key is in neither, Find reads the
// stream for its keys, as Lookup does.
func (n *Engine) Find(ctx context.Context, stream, key string) (engine.Record, bool, error) {
	s, subject, err := n.find(stream)
	if err != nil {
		return engine.Record{}, false, err
	}
	c := n.cache.acquire(stream)
	defer n.cache.release(c)
	if ix := c.tryLock(); ix != nil {
		cold := ix.at.last == 0
		if c.unlock(); cold {
			if r, ok, err := n.nearEnds(ctx, s, subject, c, key); ok || err != nil {
				return r, ok, err
			}
		}
	}
	return n.Lookup(ctx, stream, key)
}

// nearEnds looks for a record near the start and the end of a stream. It may miss one that is there.
func (n *Engine) nearEnds(
	ctx context.Context, s *shard, subject string, c *cached, key string,
) (found engine.Record, ok bool, err error) {
	end, count := c.seen()
	if count == 0 {
		if end, _, err = n.look(ctx, s, subject, c); err != nil {
			return found, false, err
		}
	}
	for _, part := range []struct {
		after uint64
		bytes int
	}{{0, startBytes}, {end.last - min(end.last, endMessages), endBytes}} {
		size := 0
		w := walker{n: n, s: s, subject: subject, after: part.after, upTo: end.last}
		_, err = w.page(ctx, part.bytes, func(seq uint64, f *frame) bool {
			if positionAfter(seq, f.born, f.data, len(f.records)).born == end.born {
				for _, r := range f.records {
					if r.Key == key {
						r.Seq = seq
						found, ok = r, true
					}
				}
			}
			size += f.size()
			return !ok && size < part.bytes
		})
		if ok || err != nil {
			return found, ok, err
		}
	}
	return found, false, nil
}
