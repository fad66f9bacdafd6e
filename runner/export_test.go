package runner

import "time"

// LookEvery is the time between two looks at the agent.
const LookEvery = lookEvery

// Signs are signs, for tests.
type Signs struct {
	Now, Began, Line, Output, Work, Away time.Duration
	Resting                              bool
}

// Limits are limits, for tests.
type Limits struct{ Linger, Stall, Unreachable, Guard time.Duration }

// Breach is what the runner does to an agent with these signs; "" for nothing.
func (l Limits) Breach(s Signs) string {
	d := limits{l.Linger, l.Stall, l.Unreachable, l.Guard}.breach(signs{s.Now, s.Began, s.Line, s.Output, s.Work, s.Away, s.Resting})
	if d == nil {
		return ""
	}
	return string(d.what)
}

// Observed is the observed time after looks at the given times, and what was lost.
func Observed(looks ...time.Duration) (seen, lost time.Duration) {
	e := eyes{last: looks[0]}
	for _, at := range looks[1:] {
		var gap time.Duration
		seen, gap = e.look(at)
		lost += gap
	}
	return seen, lost
}

// Began is began, for tests.
func Began(started time.Time, elapsed time.Duration, now time.Time) time.Time {
	return began(started, elapsed, now)
}
