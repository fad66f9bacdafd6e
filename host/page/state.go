package page

import (
	"time"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// States of a thread in the list beside those of an open run, which package view has.
const (
	stateDone      = "done"
	stateFailed    = "failed"
	stateCancelled = "cancelled"
)

// states are all states, in the order in which the list offers them.
var states = []string{
	string(view.Working), string(view.Waiting), string(view.Silent), string(view.Dead),
	stateDone, stateFailed, stateCancelled, string(view.Idle),
}

// stateOf returns the state of a thread at a time, and for people.
func stateOf(v thread.Summary, now time.Time) (name, label string) {
	live := view.PulseOf(v).At(now)
	switch {
	case live.State == view.Ended && v.Status == thread.StatusCompleted:
		return stateDone, stateDone
	case live.State == view.Ended && v.Status == thread.StatusCancelled:
		return stateCancelled, stateCancelled
	case live.State == view.Ended && v.ErrorClass != "":
		return stateFailed, "failed: " + v.ErrorClass
	case live.State == view.Ended:
		return stateFailed, stateFailed
	case live.State == view.Silent: // page.js has the same words
		return string(live.State), "silent, dead in " + span(live.DeadIn)
	}
	return string(live.State), string(live.State)
}

// parseTime parses a time of a summary; the zero time for "".
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
