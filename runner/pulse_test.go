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

// A live run that waits for a day posts a heartbeat at its beginning and one a minute, and is never silent.
func TestPulseWaits(t *testing.T) {
	p := pulse{every: 5 * time.Second, waiting: true}
	var beats []time.Duration
	promised, now := p.every, time.Duration(0)
	for now < 24*time.Hour {
		due := p.due(false)
		if due-now > silentBeats*promised {
			t.Fatalf("nothing between %v and %v, after a promise of %v", now, due, promised)
		}
		now = due
		promised = p.beat(now, false)
		beats = append(beats, now)
	}
	if len(beats) > 24*60+1 || promised != maxBeatless {
		t.Errorf("%d heartbeats in 24 h, the last announces %v", len(beats), promised)
	}
	p.waiting = false // a chat has come
	if due := p.due(false); due > now+p.every {
		t.Errorf("at work a heartbeat is due after %v", due-now)
	}
	if p.beat(now+p.every, false) != p.every {
		t.Error("at work a heartbeat announces a minute")
	}
}
