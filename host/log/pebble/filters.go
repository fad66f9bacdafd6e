package pebble

import (
	"hash/maphash"

	"arbe.0sk.ar/runner/host/log/engine"
)

// filters are the key sets of the streams whose keys were looked up last. The lock of a stream's place guards its set.
type filters struct{ engine.LRU[string, *keySet] }

// filterOverhead is the memory of a filter besides its key set, in bytes: the filter, its place in order, its name.
const filterOverhead = 256

// mostFilterBytes is the bound of all filters of a store.
func mostFilterBytes() int { return int(memoryShare(16, 4<<20, 256<<20)) }

// add adds the keys of records that were appended, if the stream has a filter.
func (f *filters) add(stream string, records []engine.Record) {
	keys, ok := f.Get(stream)
	if !ok {
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

// set stores a stream's filter, or counts it again.
func (f *filters) set(stream string, keys *keySet) {
	f.Put(stream, keys, keys.bytes()+filterOverhead+len(stream))
}

// keySet is a set of keys that may report a key that it lacks, for at most one key in fifty, and never misses one that
// it has. It takes 2 to 8 bytes a key. Most keys that are looked up are new: for these it saves the read. It is a
// chain of Bloom filters, each four times as large as the one before.
type keySet struct {
	blooms []bloomFilter
	room   int // keys that the last filter still takes
}

// bloomFilter has 6 bits of each key, in one cache line.
type bloomFilter struct{ lines [][8]uint64 }

const (
	firstKeys   = 64
	bitsPerKey  = 16
	bitsPerLine = 512
	probes      = 6
)

var hashSeed = maphash.MakeSeed()

func keyHash(key []byte) uint64 { return maphash.Bytes(hashSeed, key) }

func (s *keySet) add(h uint64) {
	if s.room == 0 {
		keys := firstKeys << (2 * len(s.blooms))
		s.blooms = append(s.blooms, bloomFilter{make([][8]uint64, (keys*bitsPerKey+bitsPerLine-1)/bitsPerLine)})
		s.room = keys
	}
	s.room--
	line, bits := s.blooms[len(s.blooms)-1].at(h)
	for range probes {
		line[bits>>6&7] |= 1 << (bits & 63)
		bits >>= 9
	}
}

func (s *keySet) has(h uint64) bool {
	for _, f := range s.blooms {
		line, bits := f.at(h)
		all := true
		for range probes {
			all = all && line[bits>>6&7]&(1<<(bits&63)) != 0
			bits >>= 9
		}
		if all {
			return true
		}
	}
	return false
}

// bytes is the memory that the set takes.
func (s *keySet) bytes() (n int) {
	for _, f := range s.blooms {
		n += len(f.lines) * bitsPerLine / 8
	}
	return n
}

// at returns the line that holds a key's bits, and a number of which each 9 bits are the place of one.
func (f bloomFilter) at(h uint64) (*[8]uint64, uint64) {
	line := uint32(h>>32) % uint32(len(f.lines))
	return &f.lines[line], h * 0x9e3779b97f4a7c15
}
