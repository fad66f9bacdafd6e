package runner

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The thread gets entries of a live run as often as its heartbeats promise: every few seconds, and once a minute while
// the end is being delivered. There is no heartbeat beyond that.
func TestPulse(t *testing.T) {
	const every = 5 * time.Second
	random := rand.New(rand.NewPCG(1, 2))
	within := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	for round := range 2000 {
		p := pulse{every: every}
		quiet := []time.Duration{time.Second, every - 1, every, 3 * every, time.Hour}[round%5]
		closes := within(20 * time.Minute)
		entry := within(quiet) + 1 // the next one that will be acknowledged
		var now, beaten time.Duration
		promised := every
		for now < 30*time.Minute {
			closing := now >= closes
			due := p.due(closing)
			if due < now {
				t.Fatalf("round %d: a heartbeat was due at %v, and it is %v", round, due, now)
			}
			newest, beat := p.spoke, promised
			switch {
			case entry <= due && !closing: // of a run at its end nothing else is acknowledged
				now, p.spoke = entry, entry
				entry += within(quiet) + 1
			case !closing && due > closes:
				now = closes
				continue
			default:
				now = due
				if least := min(every, maxBeatless); now-beaten < least {
					t.Fatalf("round %d: heartbeats at %v and %v", round, beaten, now)
				}
				promised, beaten = p.beat(now, closing), now
			}
			if gap := now - newest; !closing && gap > every || gap > silentBeats*beat {
				t.Fatalf("round %d: nothing for %v before %v, closing %v", round, gap, now, closing)
			}
		}
	}
}
