package jetstream

import (
	"bytes"
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
			ix.values[name] = bytes.Clone(value) // a copy: value shares the memory of a whole message
		}
	}
}

// fresh returns the stream's index, at least as new as any result that this engine has returned for the stream. The
// caller unlocks it.
func (x *subject) fresh(ctx context.Context) (*index, error) {
	ix, err := x.cached.lock(ctx)
	if err != nil {
		return nil, err
	}
	if err := x.catchUp(ctx, ix); err != nil {
		x.cached.unlock()
		return nil, err
	}
	return ix, nil
}

// catchUp reads the appends that the index lacks. The stream may be deleted meanwhile: catchUp then asks for its
// position again.
func (x *subject) catchUp(ctx context.Context, ix *index) error {
	want, count := x.cached.seen()
	for range 10 {
		if count == 0 {
			var err error
			if want, _, err = x.look(ctx); err != nil {
				return err
			}
		}
		if ix.at.born != want.born { // another stream of the same name
			*ix = index{}
		}
		err := x.walk(ctx, ix.at.last, want.last, mostPage, func(seq uint64, f *frame) bool {
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
	return fmt.Errorf("read keys from %s: %w", x.shard.stream, errAgain)
}

// Lookup finds the key in the index, and its record in the stream. The index has the keys of removed records as well.
func (n *Engine) Lookup(ctx context.Context, stream, key string) (engine.Record, bool, error) {
	var seq uint64
	var ok bool
	err := n.indexed(ctx, stream, func(ix *index) { seq, ok = ix.keys[hashKey(key)] })
	if err != nil || !ok {
		return engine.Record{}, false, err
	}
	f, err := n.recentFrame(ctx, stream, seq)
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

// mostRecent is how many bytes of looked-up frames are cached: a client that repeats an append makes a look-up for each
// of its records.
const mostRecent = 128 << 20

type frameKey struct {
	stream string
	seq    uint64
}

// recentFrame is frameAt for a frame that may be cached.
func (n *Engine) recentFrame(ctx context.Context, stream string, seq uint64) (*frame, error) {
	key := frameKey{stream, seq}
	if f, ok := n.recent.Get(key); ok {
		return f, nil
	}
	x, err := n.find(stream)
	if err != nil {
		return nil, err
	}
	f, _, err := x.frameAt(ctx, seq)
	if err == nil && f != nil {
		n.recent.Put(key, f, f.size()+100*len(f.records)+1000)
	}
	return f, err
}

// forget drops the cached frames of a stream.
func (n *Engine) forget(stream string) {
	n.recent.DropIf(func(key frameKey) bool { return key.stream == stream })
}

// indexed calls f with a stream's index.
func (n *Engine) indexed(ctx context.Context, stream string, f func(*index)) error {
	x, err := n.use(stream)
	if err != nil {
		return err
	}
	defer x.release()
	ix, err := x.fresh(ctx)
	if err != nil {
		return err
	}
	defer x.cached.unlock()
	f(ix)
	return nil
}

// Value is Values for one name.
func (n *Engine) Value(ctx context.Context, stream, name string) (value []byte, err error) {
	err = n.indexed(ctx, stream, func(ix *index) { value = bytes.Clone(ix.values[name]) })
	return value, err
}

// Values reads the index.
func (n *Engine) Values(ctx context.Context, stream, prefix string) (map[string][]byte, error) {
	values := map[string][]byte{}
	err := n.indexed(ctx, stream, func(ix *index) {
		for name, value := range ix.values {
			if strings.HasPrefix(name, prefix) {
				values[name] = bytes.Clone(value)
			}
		}
	})
	return values, err
}

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
	x, err := n.use(stream)
	if err != nil {
		return engine.Record{}, false, err
	}
	defer x.release()
	if ix := x.cached.tryLock(); ix != nil {
		cold := ix.at.last == 0
		if x.cached.unlock(); cold {
			if r, ok, err := x.nearEnds(ctx, key); ok || err != nil {
				return r, ok, err
			}
		}
	}
	return n.Lookup(ctx, stream, key)
}

// nearEnds looks for a record near the start and the end of a stream. It may miss one that is there.
func (x *subject) nearEnds(ctx context.Context, key string) (found engine.Record, ok bool, err error) {
	end, count := x.cached.seen()
	if count == 0 {
		if end, _, err = x.look(ctx); err != nil {
			return found, false, err
		}
	}
	for _, part := range []struct {
		after uint64
		bytes int
	}{{0, startBytes}, {end.last - min(end.last, endMessages), endBytes}} {
		size := 0
		w := walker{subject: x, after: part.after, upTo: end.last}
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
