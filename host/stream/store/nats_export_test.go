package store

// KeepAtMost sets how many keys and values the engine keeps in memory.
func (n *NATS) KeepAtMost(most int) { n.cache.most = most }

// Kept is how many it keeps.
func (n *NATS) Kept() int {
	n.cache.mu.Lock()
	defer n.cache.mu.Unlock()
	return n.cache.kept
}
