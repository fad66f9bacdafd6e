package harness

import (
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

// Tally computes a run's last turn from the lines of its session and the agent's stdout. The zero value is a run
// without lines.
type Tally struct {
	// OnStdout: a turn ends with a line on stdout (Spec.EndsOnStdout). Without any line on stdout the session decides.
	OnStdout bool

	turn    outcome.Turn
	output  bool            // the run has assistant output
	calling bool            // the last line that counts is the agent's, in mid-turn
	waiting map[string]bool // tool calls of the last reply without a result
	report  Report          // the last one about a turn's end
	printed bool            // there was a line on stdout
}

// Report is the information in a line of an agent's stdout. Most lines have none.
type Report struct {
	SessionID string // the session's id

	// Mark is End, Failure or Abort if the line ends a turn so, and Begin if another turn begins. The next three fields
	// describe the end.
	Mark       session.Mark
	StopReason string
	Class      string // one of outcome's classes, if finer than provider_error
	Message    string

	Offline bool // the agent can't reach its provider, and waits
}

// Add takes the run's next line.
func (t *Tally) Add(e session.Entry) {
	if e.Kind == session.Header {
		return // it is no part of a turn
	}
	t.turn.Lines++
	if e.Known {
		t.turn.Understood++
	}
	if e.Side {
		return
	}
	if e.Kind == session.Assistant {
		t.output = true
		t.turn.Provider, t.turn.Model = e.Provider, e.Model
		if !t.calling {
			t.waiting = map[string]bool{}
		}
		for _, call := range e.Calls {
			t.waiting[call.ID] = true
		}
	}
	if e.Mark == session.NoMark {
		return
	}
	t.calling = e.Mark == session.Output
	if e.Mark != session.Answer {
		t.turn.StopReason, t.turn.Message = e.StopReason, e.ErrorMessage
	}
	switch e.Mark {
	case session.NoMark:
	case session.Prompt, session.Begin:
		t.turn.State, t.turn.StopReason = outcome.None, outcome.StopNone
		if t.output {
			t.turn.State = outcome.Unfinished // an answer that has not begun
		}
		t.waiting = nil
	case session.Output:
		t.turn.State = outcome.Unfinished
		if e.StopReason == outcome.StopStop { // the model's reply is complete, the turn is not
			t.turn.StopReason = outcome.StopNone
		}
	case session.Answer:
		delete(t.waiting, e.ToolCallID)
		t.turn.State = outcome.Unfinished
	case session.End:
		t.turn.State = outcome.Ended
	case session.Failure:
		t.turn.State = outcome.Errored
	case session.Abort:
		t.turn.State = outcome.Aborted
	}
}

// AddReport adds the report of the next line of stdout.
func (t *Tally) AddReport(s Report) {
	t.printed = true
	switch s.Mark {
	case session.NoMark:
	case session.Begin:
		t.report = Report{}
	default:
		t.report = s
	}
}

// Turn returns the run's last turn so far. A failure in the session or on stdout wins, then an interruption in either.
// A success on stdout alone counts if the session has lines: an empty answer leaves no line in claude's session.
func (t *Tally) Turn() outcome.Turn {
	turn := t.turn
	reported := func(state outcome.State, stop string) {
		if turn.State != state {
			turn.State, turn.StopReason, turn.Message = state, stop, t.report.Message
		}
		turn.Class = t.report.Class
	}
	switch {
	case t.report.Mark == session.Failure:
		reported(outcome.Errored, t.report.StopReason)
	case turn.State == outcome.Errored:
	case t.report.Mark == session.Abort:
		reported(outcome.Aborted, outcome.StopAborted)
	case turn.State == outcome.Aborted:
	case t.report.Mark == session.End && turn.Lines > 0:
		reported(outcome.Ended, t.report.StopReason)
	case turn.State == outcome.Ended && t.OnStdout && t.printed:
		turn.State = outcome.Unfinished // the model's reply is complete, the agent was not
	}
	return turn
}

// Over reports whether the session has the end of the turn on record, whatever stdout has.
func (t *Tally) Over() bool {
	state := t.turn.State
	return state == outcome.Ended || state == outcome.Errored || state == outcome.Aborted
}

// Resting reports whether the turn has ended well and no tool is at work: an agent that is silent from here on lingers.
// (pi 0.78.0 still runs the tool calls of a reply that was cut at the output limit.)
func (t *Tally) Resting() bool {
	return t.Turn().State == outcome.Ended && len(t.waiting) == 0
}
