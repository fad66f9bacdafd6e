package jetstream

import (
	"container/list"
	"context"
	"sync"
)

// mostKept is how many keys and values, of all streams, are kept in memory. A key takes some 60 bytes.
const mostKept = 2_000_000

// cache has what is known of the streams in use, and of those that were lately. The zero value is ready.
type cache struct {
	mu      sync.Mutex
	streams map[string]*cached
	order   list.List // of *cached, the one last used in front
	kept    int       // what they all hold
	most    int       // mostKept where it is 0
}

// cached is what is known of one stream.
type cached struct {
	name  string
	place *list.Element // in cache.order
	users int           // guarded by cache.mu, as kept
	kept  int           // what it holds, as far as counted

	mu    sync.Mutex
	known bool
	at    standing // where the stream stood when last seen, if known
	count uint64   // of the times that at was set

	turn  chan struct{} // holds a value while index is in use
	index index
}

// acquire returns what is known of a stream, which stays until it is released.
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

// release forgets the streams that were not used for longest, where there are too many keys.
func (k *cache) release(c *cached) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c.users--
	if c.users > 0 {
		return
	}
	now := c.index.size() // nobody else has it
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

// seen returns where the stream stood when last seen, and how often it was.
func (c *cached) seen() (standing, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at, c.count
}

// see notes where the stream stands. What came late is not news.
func (c *cached) see(at standing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || at.last > c.at.last {
		c.known, c.at = true, at
		c.count++
	}
}

// seeNone notes that there was no such stream, unless something was seen of it since it had been seen count times.
func (c *cached) seeNone(count uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == count {
		c.known, c.at = true, standing{}
		c.count++
	}
}

// lock waits for the index.
func (c *cached) lock(ctx context.Context) (*index, error) {
	select {
	case c.turn <- struct{}{}:
		return &c.index, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tryLock returns nil where the index is in use.
func (c *cached) tryLock() *index {
	select {
	case c.turn <- struct{}{}:
		return &c.index
	default:
		return nil
	}
}

func (c *cached) unlock() { <-c.turn }
