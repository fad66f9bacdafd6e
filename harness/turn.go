package harness

import (
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

// Tally follows the lines of one run and what the agent said of it on stdout, and knows what they say of the run's last turn. The zero value is a run
// without lines.
type Tally struct {
	// OnStdout says that the agent's turn is over when stdout says so, and not before. Where nothing was heard of stdout at all, the session has to do.
	OnStdout bool

	turn    outcome.Turn
	output  bool            // the run has assistant output
	calling bool            // the last line that counts was the agent's, and its turn goes on
	waiting map[string]bool // tool calls of the last reply that have no answer yet
	said    Said            // the last word on stdout about a turn's end
	heard   bool            // there was a line on stdout
}

// Said is what a line of an agent's stdout tells. Most tell nothing.
type Said struct {
	SessionID string // what the agent calls its session

	// Mark is End, Failure or Abort where the line says so of the turn, with what it says of that, and Begin where another turn begins.
	Mark       session.Mark
	StopReason string
	Class      string // one of outcome's, where finer than provider_error
	Message    string

	Offline bool // the agent can't reach its provider, and waits
}

// Add takes the run's next line.
func (t *Tally) Add(e session.Entry) {
	if e.Kind == session.Header {
		return // it says nothing of what the agent did
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
		if e.StopReason == outcome.StopStop { // the model's reply is whole; what becomes of the turn is still to be said
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

// Hear takes what the next line of stdout tells.
func (t *Tally) Hear(s Said) {
	t.heard = true
	switch s.Mark {
	case session.NoMark:
	case session.Begin:
		t.said = Said{}
	default:
		t.said = s
	}
}

// Turn is what the lines so far, and stdout, say of the run's last turn. What either knows of a failure counts, and then of an interruption. A success that
// only stdout knows of counts where there is a session at all: an empty answer leaves no line in claude's.
func (t *Tally) Turn() outcome.Turn {
	turn := t.turn
	heard := func(state outcome.State, stop string) {
		if turn.State != state {
			turn.State, turn.StopReason, turn.Message = state, stop, t.said.Message
		}
		turn.Class = t.said.Class
	}
	switch {
	case t.said.Mark == session.Failure:
		heard(outcome.Errored, t.said.StopReason)
	case turn.State == outcome.Errored:
	case t.said.Mark == session.Abort:
		heard(outcome.Aborted, outcome.StopAborted)
	case turn.State == outcome.Aborted:
	case t.said.Mark == session.End && turn.Lines > 0:
		heard(outcome.Ended, t.said.StopReason)
	case turn.State == outcome.Ended && t.OnStdout && t.heard:
		turn.State = outcome.Unfinished // the model's reply is whole, but the agent was not done
	}
	return turn
}

// Resting reports that the turn has ended well and that no tool is at work: from here on a silent agent is one that will not go.
// (pi 0.78.0 still runs the tool calls of a reply that was cut at the output limit.)
func (t *Tally) Resting() bool {
	return t.Turn().State == outcome.Ended && len(t.waiting) == 0
}
