package jetstream

import "sync"

// mostRecent is how many bytes of looked-up frames are cached.
const mostRecent = 128 << 20

// recent caches the frames that were looked up last: a client that repeats an append makes a look-up for each of its
// records. The zero value is ready to use.
type recent struct {
	mu     sync.Mutex
	frames map[frameKey]*frame
	order  []frameKey // oldest first
	bytes  int
}

type frameKey struct {
	stream string
	seq    uint64
}

// frame returns the frame at seq, which load reads if it is not cached. It may be nil.
func (r *recent) frame(stream string, seq uint64, load func() (*frame, error)) (*frame, error) {
	key := frameKey{stream, seq}
	r.mu.Lock()
	f := r.frames[key]
	r.mu.Unlock()
	if f != nil {
		return f, nil
	}
	f, err := load()
	if err != nil || f == nil || f.size() > mostRecent {
		return f, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frames[key] != nil {
		return f, nil
	}
	if r.frames == nil {
		r.frames = map[frameKey]*frame{}
	}
	r.frames[key] = f
	r.order = append(r.order, key)
	r.bytes += weight(f)
	for r.bytes > mostRecent {
		r.drop(r.order[0])
		r.order = r.order[1:]
	}
	return f, nil
}

// forget drops the frames of a stream.
func (r *recent) forget(stream string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.order[:0]
	for _, key := range r.order {
		if key.stream == stream {
			r.drop(key)
		} else {
			kept = append(kept, key)
		}
	}
	r.order = kept
}

// drop drops a frame. The caller changes r.order.
func (r *recent) drop(key frameKey) {
	r.bytes -= weight(r.frames[key])
	delete(r.frames, key)
}

// weight is about the memory that a frame takes, in bytes.
func weight(f *frame) int { return f.size() + 100*len(f.records) + 1000 }
