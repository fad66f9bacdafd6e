package harness

import (
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

// Tally follows the lines of one run and knows what they say of its last turn. The zero value is a run without lines.
type Tally struct {
	turn    outcome.Turn
	output  bool            // the run has assistant output
	waiting map[string]bool // tool calls of the last assistant turn that have no answer yet
}

// Add takes the run's next line.
func (t *Tally) Add(e session.Entry) {
	if e.Kind == session.Header {
		return // made beforehand by us: it says nothing of what the agent wrote
	}
	t.turn.Lines++
	if e.Known {
		t.turn.Understood++
	}
	if e.Kind == session.Assistant {
		t.output = true
		t.turn.StopReason, t.turn.Message = e.StopReason, e.ErrorMessage
		t.turn.Provider, t.turn.Model = e.Provider, e.Model
		t.waiting = nil
		for _, id := range e.Calls {
			if t.waiting == nil {
				t.waiting = map[string]bool{}
			}
			t.waiting[id] = true
		}
	}
	switch e.Mark {
	case session.NoMark:
	case session.Prompt:
		t.turn.State, t.turn.StopReason, t.turn.Message = outcome.None, outcome.StopNone, ""
		if t.output {
			t.turn.State = outcome.Unfinished // an answer that has not begun
		}
		t.waiting = nil
	case session.Output:
		t.turn.State = outcome.Unfinished
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

// Turn is what the lines so far say of the run's last turn.
func (t *Tally) Turn() outcome.Turn { return t.turn }

// Resting reports that the turn has ended well and that no tool is at work: from here on a silent agent is one that will not go.
// (pi 0.78.0 still runs the tool calls of a reply that was cut at the output limit.)
func (t *Tally) Resting() bool { return t.turn.State == outcome.Ended && len(t.waiting) == 0 }
