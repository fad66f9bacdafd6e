package log

import (
	"sync"
	"time"
)

// uses holds the uses of streams with a TTL that the log could not store, because it takes no appends. Reads succeed
// meanwhile, and these streams do not expire while this process runs. The zero value is ready.
type uses struct {
	mu sync.Mutex
	of map[string]use // by the stream's name
}

type use struct {
	born string
	at   time.Time
}

// maxUses bounds the uses in memory. Beyond it some are dropped, and their streams may expire early.
const maxUses = 10_000

// note keeps a use.
func (u *uses) note(v Stream, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = map[string]use{}
	}
	for name := range u.of {
		if len(u.of) < maxUses {
			break
		}
		delete(u.of, name)
	}
	u.of[v.Name] = use{v.Born, at}
}

// forget drops a use that was stored.
func (u *uses) forget(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.of, name)
}

// expired reports whether a stream has expired, counting its uses in memory.
func (u *uses) expired(v Stream, now time.Time) bool {
	if !v.expired(now) || !v.HasTTL {
		return v.expired(now)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if last, ok := u.of[v.Name]; ok && last.born == v.Born && last.at.After(v.Used) {
		v.Used = last.at
	}
	return v.expired(now)
}
