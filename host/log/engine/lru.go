package engine

import (
	"container/list"
	"sync"
)

// LRU keeps the values that were used last, which together take at most Most bytes, or one alone that takes more. The
// zero value but for Most is ready to use. Most must not change while it is in use.
type LRU[K comparable, V any] struct {
	Most int

	mu    sync.Mutex
	at    map[K]*list.Element // of *kept[K, V]
	order list.List           // the one used last in front
	bytes int                 // of all
}

// kept is a value in an LRU.
type kept[K comparable, V any] struct {
	key   K
	value V
	bytes int
}

// Get returns a key's value, which counts as used now. It reports false for a key without one.
func (l *LRU[K, V]) Get(key K) (value V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.at[key]
	if at == nil {
		return value, false
	}
	l.order.MoveToFront(at)
	return at.Value.(*kept[K, V]).value, true
}

// Put sets a key's value, which takes so many bytes, and drops those that were used longest ago.
func (l *LRU[K, V]) Put(key K, value V, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(key)
	if l.at == nil {
		l.at = map[K]*list.Element{}
	}
	l.at[key] = l.order.PushFront(&kept[K, V]{key, value, bytes})
	l.bytes += bytes
	for l.bytes > l.Most && l.order.Len() > 1 {
		l.drop(l.order.Back().Value.(*kept[K, V]).key)
	}
}

// Drop drops a key's value, if there is one.
func (l *LRU[K, V]) Drop(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(key)
}

// DropIf drops the values of the keys for which which reports true. It must not call the LRU.
func (l *LRU[K, V]) DropIf(which func(key K) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.at {
		if which(key) {
			l.drop(key)
		}
	}
}

func (l *LRU[K, V]) drop(key K) {
	if at := l.at[key]; at != nil {
		l.bytes -= l.order.Remove(at).(*kept[K, V]).bytes
		delete(l.at, key)
	}
}
