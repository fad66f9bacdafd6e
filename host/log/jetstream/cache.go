package jetstream

import (
	"container/list"
	"context"
	"sync"
)

// mostKept is how many keys and values of all streams are cached. A key takes about 60 bytes.
const mostKept = 2_000_000

// cache has the indexes of the streams in use, and of those that were used last. The zero value is ready to use.
type cache struct {
	mu      sync.Mutex
	streams map[string]*cached
	order   list.List // of *cached, the one used last in front
	kept    int       // keys and values of all, as counted
	most    int       // 0 for mostKept
}

// cached is the cache's entry of one stream.
type cached struct {
	name  string
	place *list.Element // in cache.order
	users int           // guarded by cache.mu, as is kept
	kept  int           // keys and values, as counted

	mu    sync.Mutex
	known bool
	at    position // newest position seen, if known
	count uint64   // number of times that at was set

	turn  chan struct{} // lock of index: has a value while it is held
	index index
}

// acquire returns a stream's entry, which stays until it is released.
func (k *cache) acquire(name string) *cached {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.streams[name]
	if c == nil {
		if k.streams == nil {
			k.streams = map[string]*cached{}
		}
		c = &cached{name: name, turn: make(chan struct{}, 1)}
		c.place = k.order.PushFront(c)
		k.streams[name] = c
	}
	c.users++
	k.order.MoveToFront(c.place)
	return c
}

// release evicts the entries that were used longest ago while there are too many keys.
func (k *cache) release(c *cached) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c.users--
	if c.users > 0 {
		return
	}
	now := c.index.size() // it has no user that could change it
	k.kept += now - c.kept
	c.kept = now
	most := k.most
	if most == 0 {
		most = mostKept
	}
	for e := k.order.Back(); e != nil && k.kept > most; {
		c, next := e.Value.(*cached), e.Prev()
		if c.users == 0 {
			k.order.Remove(e)
			delete(k.streams, c.name)
			k.kept -= c.kept
		}
		e = next
	}
}

// seen returns the newest position seen, and how often it was set.
func (c *cached) seen() (position, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at, c.count
}

// see records a position, unless a newer one is known.
func (c *cached) see(at position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || at.last > c.at.last {
		c.known, c.at = true, at
		c.count++
	}
}

// seeNone records that the stream did not exist when its position had been set count times.
func (c *cached) seeNone(count uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == count {
		c.known, c.at = true, position{}
		c.count++
	}
}

// lock locks the index.
func (c *cached) lock(ctx context.Context) (*index, error) {
	select {
	case c.turn <- struct{}{}:
		return &c.index, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tryLock is lock for an index that nobody uses; else it returns nil.
func (c *cached) tryLock() *index {
	select {
	case c.turn <- struct{}{}:
		return &c.index
	default:
		return nil
	}
}

func (c *cached) unlock() { <-c.turn }
