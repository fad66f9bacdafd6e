package log

import (
	"sync"
	"time"
)

// uses are the uses of streams with a TTL that could not be written down, since the log takes no appends. Readers go
// on, and what they use does not expire while this process runs. The zero value is ready.
type uses struct {
	mu sync.Mutex
	of map[string]use // by the stream's name
}

type use struct {
	born string
	at   time.Time
}

// maxUses is how many are kept. Beyond it any of them is forgotten: what was used then may expire as if it had not
// been.
const maxUses = 10_000

// note keeps that a stream was used.
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

// forget is called when the use of a stream is written down.
func (u *uses) forget(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.of, name)
}

// expired reports whether a stream's time is over, its uses that are not written down considered.
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
