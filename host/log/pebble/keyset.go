package pebble

import "hash/maphash"

// seen is a set of keys that may take a stranger for a member, one time in fifty or less, and never a member for a stranger. It takes some 2 to 8 bytes a key:
// most keys that are looked up are new, and so it spares most look-ups. It is a chain of Bloom filters, each four times as large as the one before.
type seen struct {
	filters []filter
	room    int // keys that the last one still takes
}

// filter has 6 bits of each key, in one line of the cache.
type filter struct{ lines [][8]uint64 }

const (
	firstKeys   = 64
	bitsPerKey  = 16
	bitsPerLine = 512
	probes      = 6
)

var seenSeed = maphash.MakeSeed()

func seenHash(key []byte) uint64 { return maphash.Bytes(seenSeed, key) }

func (s *seen) add(h uint64) {
	if s.room == 0 {
		keys := firstKeys << (2 * len(s.filters))
		s.filters = append(s.filters, filter{make([][8]uint64, (keys*bitsPerKey+bitsPerLine-1)/bitsPerLine)})
		s.room = keys
	}
	s.room--
	line, bits := s.filters[len(s.filters)-1].at(h)
	for range probes {
		line[bits>>6&7] |= 1 << (bits & 63)
		bits >>= 9
	}
}

func (s *seen) has(h uint64) bool {
	for _, f := range s.filters {
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

// at is the line that a key has its bits in, and which these are: 9 of the bits that it returns for each.
func (f filter) at(h uint64) (*[8]uint64, uint64) {
	line := uint32(h>>32) % uint32(len(f.lines))
	return &f.lines[line], h * 0x9e3779b97f4a7c15
}
