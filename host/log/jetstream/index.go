package jetstream

import (
	"context"
	"fmt"
	"strings"

	"arbe.0sk.ar/runner/host/log/engine"
)

// index has the keys and values of a stream, up to one of its appends. The zero value is that of a stream that doesn't
// exist.
type index struct {
	at     position // after the last append in the index
	keys   map[keyHash]uint64
	values map[string][]byte
	large  int // the values' bytes, in units of a key's
}

// size is the memory of the index in units of a key's.
func (ix *index) size() int { return 8 + len(ix.keys) + len(ix.values) + ix.large }

// add adds the append at seq.
func (ix *index) add(seq uint64, f *frame) {
	if ix.keys == nil {
		ix.keys, ix.values = map[keyHash]uint64{}, map[string][]byte{}
	}
	for _, r := range f.records {
		if r.Key != "" {
			ix.keys[hashKey(r.Key)] = seq
		}
	}
	for hash, seq := range f.gone {
		ix.keys[hash] = seq
	}
	for name, value := range f.values {
		ix.large += len(value)/64 - len(ix.values[name])/64
		if value == nil {
			delete(ix.values, name)
		} else {
			ix.values[name] = append([]byte{}, value...) // a copy: value shares the memory of a whole message
		}
	}
}

// fresh returns the stream's index, at least as new as any result that this engine has returned for the stream. The
// caller unlocks it.
func (n *Engine) fresh(ctx context.Context, s *shard, subject string, c *cached) (*index, error) {
	ix, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	if err := n.catchUp(ctx, s, subject, c, ix); err != nil {
		c.unlock()
		return nil, err
	}
	return ix, nil
}

// catchUp reads the appends that the index lacks. The stream may be deleted meanwhile: catchUp then asks for its
// position again.
func (n *Engine) catchUp(ctx context.Context, s *shard, subject string, c *cached, ix *index) error {
	want, count := c.seen()
	for range 10 {
		if count == 0 {
			var err error
			if want, _, err = n.look(ctx, s, subject, c); err != nil {
				return err
			}
		}
		if ix.at.born != want.born { // another stream of the same name
			*ix = index{}
		}
		err := n.walk(ctx, s, subject, ix.at.last, want.last, mostPage, func(seq uint64, f *frame) bool {
			now := positionAfter(seq, f.born, f.data, len(f.records))
			if now.born != ix.at.born {
				*ix = index{}
			}
			ix.add(seq, f)
			ix.at = now
			return true
		})
		if err != nil || ix.at.last >= want.last {
			return err
		}
		count = 0
	}
	return fmt.Errorf("read keys from %s: %w", s.stream, errAgain)
}

// Lookup finds the key in the index, and its record in the stream. The index has the keys of removed records as well.
func (n *Engine) Lookup(ctx context.Context, stream, key string) (engine.Record, bool, error) {
	s, subject, err := n.find(stream)
	if err != nil {
		return engine.Record{}, false, err
	}
	c := n.cache.acquire(stream)
	defer n.cache.release(c)
	ix, err := n.fresh(ctx, s, subject, c)
	if err != nil {
		return engine.Record{}, false, err
	}
	seq, ok := ix.keys[hashKey(key)]
	c.unlock()
	if !ok {
		return engine.Record{}, false, nil
	}
	f, err := n.recent.frame(stream, seq, func() (*frame, error) {
		f, _, err := n.frameAt(ctx, s, subject, seq)
		return f, err
	})
	if err != nil {
		return engine.Record{}, false, err
	}
	if f != nil {
		for _, r := range f.records {
			if r.Key == key {
				r.Seq = seq
				return r, true, nil
			}
		}
	}
	return engine.Record{Seq: seq, Key: key}, true, nil
}

// Value is Values for one name.
func (n *Engine) Value(ctx context.Context, stream, name string) ([]byte, error) {
	s, subject, err := n.find(stream)
	if err != nil {
		return nil, err
	}
	c := n.cache.acquire(stream)
	defer n.cache.release(c)
	ix, err := n.fresh(ctx, s, subject, c)
	if err != nil {
		return nil, err
	}
	defer c.unlock()
	value, ok := ix.values[name]
	if !ok {
		return nil, nil
	}
	return append([]byte{}, value...), nil
}

// Values reads the index.
func (n *Engine) Values(ctx context.Context, stream, prefix string) (map[string][]byte, error) {
	s, subject, err := n.find(stream)
	if err != nil {
		return nil, err
	}
	c := n.cache.acquire(stream)
	defer n.cache.release(c)
	ix, err := n.fresh(ctx, s, subject, c)
	if err != nil {
		return nil, err
	}
	defer c.unlock()
	values := map[string][]byte{}
	for name, value := range ix.values {
		if strings.HasPrefix(name, prefix) {
			values[name] = append([]byte{}, value...)
		}
	}
	return values, nil
}
