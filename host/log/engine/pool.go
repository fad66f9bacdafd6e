package engine

import "sync"

// Pool holds a value for each name in use, and for the names that were released last. Acquire and Release take the same
// time however many names there are. NewPool makes one.
type Pool[T any] struct {
	mu    sync.Mutex
	most  int
	names map[string]*Pooled[T]
	idle  Pooled[T] // head of the ring of values without users; the one released last is its next
	count int       // of the ring
}

// Pooled is a name's value in a Pool.
type Pooled[T any] struct {
	Value T // the zero value at first. Its users guard it

	name       string
	users      int
	prev, next *Pooled[T] // in the ring, while it has no users
}

// NewPool returns a pool that keeps at most most values without users.
func NewPool[T any](most int) *Pool[T] {
	p := &Pool[T]{most: most, names: map[string]*Pooled[T]{}}
	p.idle.prev, p.idle.next = &p.idle, &p.idle
	return p
}

// Acquire returns the name's value, which stays the same until every user has released it.
func (p *Pool[T]) Acquire(name string) *Pooled[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.names[name]
	switch {
	case v == nil:
		v = &Pooled[T]{name: name}
		p.names[name] = v
	case v.users == 0:
		p.unlink(v)
	}
	v.users++
	return v
}

// Release ends one Acquire. It may evict the value that was released longest ago.
func (p *Pool[T]) Release(v *Pooled[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.users--; v.users > 0 {
		return
	}
	v.prev, v.next = &p.idle, p.idle.next
	v.prev.next, v.next.prev = v, v
	if p.count++; p.count > p.most {
		last := p.idle.prev
		p.unlink(last)
		delete(p.names, last.name)
	}
}

func (p *Pool[T]) unlink(v *Pooled[T]) {
	v.prev.next, v.next.prev = v.next, v.prev
	v.prev, v.next = nil, nil
	p.count--
}

// Peek returns the name's value without acquiring it, nil if there is none.
func (p *Pool[T]) Peek(name string) *Pooled[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names[name]
}
