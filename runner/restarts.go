package runner

import (
	"syscall"
	"time"

	"arbe.0sk.ar/runner/harness"
)

// How often a worker is brought back, and with what waits between. A worker that dies again and again is not mended
// by one more; one that has lived for a while is. One that can't even start lacks room, which may come: that is tried
// for three minutes.
const (
	maxRestarts    = 10
	maxStarts      = 40
	steadyFor      = time.Minute
	firstRestart   = 50 * time.Millisecond
	slowestRestart = 5 * time.Second
)

// restarts is the policy of bringing workers back. Its zero value is that of a new run.
type restarts struct {
	all    int // workers that have died, but for those that could not start
	inARow int // of them, without one that lived for steadyFor
	failed int // starts in a row that came to nothing
}

// next takes how a worker went and returns how long to wait before the next one; more is false where there is to be
// none.
func (r *restarts) next(l life) (wait time.Duration, more bool) {
	if l.stillborn() {
		if r.failed++; l.err != nil && !harness.Busy(l.err) {
			r.failed = maxStarts // it will not start later either
		}
		return backoff(r.failed), r.failed < maxStarts
	}
	if r.failed = 0; l.lasted > steadyFor {
		r.inARow = 0
	}
	r.all, r.inARow = r.all+1, r.inARow+1
	return backoff(r.inARow), r.inARow <= maxRestarts
}

// again allows another row of starts.
func (r *restarts) again() { r.failed = 0 }

// backoff is the wait before the try after n failures.
func backoff(n int) time.Duration {
	wait := firstRestart
	for ; n > 1 && wait < slowestRestart; n-- {
		wait *= 2
	}
	return min(wait, slowestRestart)
}

// Looks at a stopped worker before it is continued, and before it is replaced.
const (
	continueAfter = 5
	replaceAfter  = 20
)

// stillness is what the keeper knows of a worker that somebody has stopped.
type stillness struct {
	is    bool
	last  time.Duration // the look before: clock
	looks int           // in a row that saw it stopped
}

// look takes whether the worker is stopped at the time now, and returns the signal that it is to get, 0 for none. A
// keeper that stood still itself, with its group or its box, has seen nothing meanwhile: it begins anew.
func (s *stillness) look(now time.Duration, stopped bool) syscall.Signal {
	gap := now - s.last
	s.last = now
	switch {
	case !stopped:
		*s = stillness{}
	case gap > 2*lookEvery:
		s.looks = 0
	default:
		s.looks++
	}
	switch {
	case s.looks == replaceAfter:
		return syscall.SIGKILL
	case s.looks > 0 && s.looks%continueAfter == 0:
		return syscall.SIGCONT
	}
	return 0
}
