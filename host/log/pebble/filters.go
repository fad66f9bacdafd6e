package pebble

import (
	"container/list"
	"sync"

	"arbe.0sk.ar/runner/host/log/engine"
)

// filters are the key sets of the streams whose keys were looked up last. Together they take at most most bytes, or one
// set alone takes more. The lock of a stream's place guards its set; filters.mu guards the rest.
type filters struct {
	most int

	mu      sync.Mutex
	streams map[string]*list.Element // of *filter
	order   list.List                // the filter used last in front
	bytes   int                      // of all filters
}

// filter is the key set of a stream.
type filter struct {
	stream string
	keys   *keySet
	bytes  int // as counted
}

// filterOverhead is the memory of a filter besides its key set, in bytes: the filter, its place in order, its name.
const filterOverhead = 256

// mostFilterBytes is the bound of all filters of a store.
func mostFilterBytes() int { return int(memoryShare(16, 4<<20, 256<<20)) }

// has reports whether the stream may have a key, and whether the stream has a filter at all.
func (f *filters) has(stream string, hash uint64) (may, known bool) {
	keys := f.get(stream)
	return keys != nil && keys.has(hash), keys != nil
}

// add adds the keys of records that were appended, if the stream has a filter.
func (f *filters) add(stream string, records []engine.Record) {
	keys := f.get(stream)
	if keys == nil {
		return
	}
	before := keys.bytes()
	for i := range records {
		keys.add(keyHash([]byte(records[i].Key)))
	}
	if keys.bytes() != before {
		f.set(stream, keys)
	}
}

func (f *filters) get(stream string) *keySet {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.streams[stream]
	if at == nil {
		return nil
	}
	f.order.MoveToFront(at)
	return at.Value.(*filter).keys
}

// set stores a stream's filter, or counts it again, and drops the filters that were used longest ago.
func (f *filters) set(stream string, keys *keySet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(stream)
	if f.streams == nil {
		f.streams = map[string]*list.Element{}
	}
	made := &filter{stream: stream, keys: keys, bytes: keys.bytes() + filterOverhead + len(stream)}
	f.streams[stream] = f.order.PushFront(made)
	f.bytes += made.bytes
	for f.bytes > f.most && f.order.Len() > 1 {
		f.remove(f.order.Back().Value.(*filter).stream)
	}
}

// drop forgets a stream's filter.
func (f *filters) drop(stream string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(stream)
}

func (f *filters) remove(stream string) {
	at := f.streams[stream]
	if at == nil {
		return
	}
	f.bytes -= f.order.Remove(at).(*filter).bytes
	delete(f.streams, stream)
}
