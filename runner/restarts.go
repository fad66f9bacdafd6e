package runner

import (
	"syscall"
	"time"

	"arbe.0sk.ar/runner/harness"
)

// Limits of restarts. After maxRestarts deaths in a row without a life of steadyFor there is no further worker. A
// worker that can't even start lacks memory or processes, which may become free: maxStarts tries take three minutes.
const (
	maxRestarts    = 10
	maxStarts      = 40
	steadyFor      = time.Minute
	firstRestart   = 50 * time.Millisecond
	slowestRestart = 5 * time.Second
)

// restarts decides whether and when the next worker starts. The zero value is for a new run.
type restarts struct {
	all    int // workers that died after their start
	inARow int // of them, since one lived for steadyFor
	failed int // failed starts in a row
}

// next returns the wait before the worker after l; more is false if there is to be none.
func (r *restarts) next(l life) (wait time.Duration, more bool) {
	if l.stillborn() {
		if r.failed++; l.err != nil && !harness.Busy(l.err) {
			r.failed = maxStarts // not for lack of room: a later start would fail, too
		}
		return backoff(r.failed), r.failed < maxStarts
	}
	if r.failed = 0; l.lasted > steadyFor {
		r.inARow = 0
	}
	r.all, r.inARow = r.all+1, r.inARow+1
	return backoff(r.inARow), r.inARow <= maxRestarts
}

// again allows maxStarts more starts.
func (r *restarts) again() { r.failed = 0 }

// backoff is the wait after n failures.
func backoff(n int) time.Duration {
	wait := firstRestart
	for ; n > 1 && wait < slowestRestart; n-- {
		wait *= 2
	}
	return min(wait, slowestRestart)
}

// Number of looks at a stopped worker before it is continued, and before it is replaced.
const (
	continueAfter = 5
	replaceAfter  = 20
)

// stillness is the state of the keeper's look at a worker that may be stopped.
type stillness struct {
	is    bool
	last  time.Duration // the previous look: clock
	looks int           // in a row that found it stopped
}

// look returns the signal for a worker that is stopped, or is not, at the time now; 0: none. A gap since the previous
// look means that the keeper was paused itself: it counts from 0 again.
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
