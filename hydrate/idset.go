package hydrate

import "hash/maphash"

// idSet is a set of ids, kept as hashes. Few rebuilds ask it anything: it is a list until the first question.
type idSet struct {
	seed maphash.Seed
	list []uint64            // nil once there is a set
	set  map[uint64]struct{} // nil until the first question
}

func newIDSet() idSet { return idSet{seed: maphash.MakeSeed()} }

func (s *idSet) add(id string) {
	hash := maphash.String(s.seed, id)
	if s.set == nil {
		s.list = append(s.list, hash)
		return
	}
	s.set[hash] = struct{}{}
}

func (s *idSet) has(id string) bool {
	if s.set == nil {
		s.set = make(map[uint64]struct{}, len(s.list))
		for _, hash := range s.list {
			s.set[hash] = struct{}{}
		}
		s.list = nil
	}
	_, ok := s.set[maphash.String(s.seed, id)]
	return ok
}
