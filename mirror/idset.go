package mirror

import "math/bits"

// idSet is a set of hashes. It takes some 11 bytes for each, where a map takes 27: it has 256 tables that grow one at a
// time and by a quarter, so that few slots are free and little is garbage.
type idSet struct {
	under *idSet // a set whose hashes are in this one, too; nil for none
	parts [256]hashTable
}

// hashTable is a table with linear probing. A slot with 0 is free.
type hashTable struct {
	slots []uint64
	used  int
}

// add puts a hash into the set.
func (s *idSet) add(h uint64) {
	h = max(h, 1)
	p := &s.parts[h>>56]
	if p.used*5 >= len(p.slots)*4 {
		p.grow()
	}
	if i := p.find(h); p.slots[i] == 0 {
		p.slots[i] = h
		p.used++
	}
}

// has reports whether a hash is in the set. A nil set is empty.
func (s *idSet) has(h uint64) bool {
	h = max(h, 1)
	for ; s != nil; s = s.under {
		if p := &s.parts[h>>56]; p.used > 0 && p.slots[p.find(h)] == h {
			return true
		}
	}
	return false
}

// empty reports whether no hash is in the set. A nil set is empty.
func (s *idSet) empty() bool {
	for ; s != nil; s = s.under {
		for i := range s.parts {
			if s.parts[i].used > 0 {
				return false
			}
		}
	}
	return true
}

// addAll puts all of another set's hashes into this one.
func (s *idSet) addAll(o *idSet) {
	for ; o != nil; o = o.under {
		for i := range o.parts {
			for _, h := range o.parts[i].slots {
				if h != 0 {
					s.add(h)
				}
			}
		}
	}
}

// find returns the slot of h, or the free slot for it. The table always has a free slot.
func (p *hashTable) find(h uint64) int {
	i, _ := bits.Mul64(h<<8, uint64(len(p.slots)))
	for p.slots[i] != 0 && p.slots[i] != h {
		if i++; i == uint64(len(p.slots)) {
			i = 0
		}
	}
	return int(i)
}

func (p *hashTable) grow() {
	old := p.slots
	p.slots = make([]uint64, len(old)*5/4+8)
	for _, h := range old {
		if h != 0 {
			p.slots[p.find(h)] = h
		}
	}
}
