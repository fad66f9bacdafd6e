package jetstream

import (
	"sync"
	"time"
)

const (
	tryTimeout  = 2 * time.Second  // least timeout of a try: the server that got it may be gone
	longestTry  = 5                // most, in least ones
	allTries    = 5                // of a request with its retries, in tries: an election may take as long
	trySlack    = 4                // least timeout of a try, in answers
	rememberFor = 30 * time.Second // at least, the slowest answer
)

// timeouts are how long the engine waits for answers: the longer, the busier the servers are. A try that is given up
// too early makes a busy server busier: the server handles it anyway, the next try comes on top of it, and a batch
// begins again. A server that is gone answers nothing, so that it makes no timeout longer.
type timeouts struct {
	least time.Duration // timeout of a try at servers that are quick

	mu     sync.Mutex
	since  time.Time     // begin of the current period
	slow   time.Duration // the slowest answer of the current period
	before time.Duration // of the period before
}

// answered notes that an answer came, after so long.
func (t *timeouts) answered(now time.Time, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(now)
	t.slow = max(t.slow, took)
}

// forget begins a period when the current one is over. The caller holds mu.
func (t *timeouts) forget(now time.Time) {
	switch age := now.Sub(t.since); {
	case age >= 2*rememberFor:
		t.since, t.slow, t.before = now, 0, 0
	case age >= rememberFor:
		t.since, t.slow, t.before = now, 0, t.slow
	}
}

// try returns the timeout of a request's try number i, which counts from 0: several times the slowest recent answer,
// and twice the timeout of the try before.
func (t *timeouts) try(now time.Time, i int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(now)
	limit, most := max(t.least, trySlack*t.slow, trySlack*t.before), longestTry*t.least
	for ; i > 0 && limit < most; i-- {
		limit *= 2
	}
	return min(limit, most)
}

// request returns the timeout of a request with its retries.
func (t *timeouts) request(now time.Time) time.Duration { return allTries * t.try(now, 0) }

// publish returns the timeout of an append of so many messages with its retries. It grows while answers become slower.
func (t *timeouts) publish(now time.Time, messages int) time.Duration {
	return t.request(now) + time.Duration(messages)*t.try(now, 0)/2
}
