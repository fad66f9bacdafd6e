package launch

import (
	"encoding/json"
	"fmt"
	"slices"

	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
)

// ExitStatus returns the exit status of a program that waits for the run with this id. It is 0 if the run has
// completed, else the agent's own: 128+n for signal n, 1 if the agent's is 0 or unknown. A run that the thread does
// not have is 1.
func ExitStatus(fold *thread.Fold, runID string) int {
	r, _ := fold.Run(runID)
	t := r.Totals
	switch {
	case r.Status == thread.StatusCompleted:
		return 0
	case t == nil:
		return 1
	case t.ExitCode != nil && *t.ExitCode != 0:
		return *t.ExitCode
	}
	return SignalStatus(t.ExitSignal)
}

// SignalStatus returns the exit status for a program that was ended by a signal: 128+n for signal n, 1 for an unknown
// one.
func SignalStatus(signal *string) int {
	if signal != nil {
		if n, err := outcome.ParseSignal(*signal); err == nil {
			return 128 + n
		}
	}
	return 1
}

// StatusNoTurn is the exit status of a program that waits for a turn where no turn of an agent has the chat
// (EX_TEMPFAIL).
const StatusNoTurn = 75

// Turn finds the end of the turn that has a chat: Add the thread's entries up to the chat, name the chat with Of, and
// Add those that follow until Over.
type Turn struct {
	Fold thread.Fold // of the entries so far

	Over    bool
	Status  int    // exit status of a program that waits
	Outcome string // of the turn
	Why     string // no turn has the chat; "" if one has

	chat, run string // "" before Of
	delivered bool
}

// Of names the chat, and the run that is to have it, which may not be there yet. Another run may have the chat first.
func (t *Turn) Of(chat, run string) { t.chat, t.run = chat, run }

// Add adds the thread's next entry.
func (t *Turn) Add(e thread.Entry) {
	sig, err := thread.Scan(e.Payload)
	if err != nil {
		return
	}
	t.Fold.AddScanned(sig, e)
	if t.chat == "" || t.Over {
		return
	}
	switch {
	case sig.Type == thread.TypeWaiting:
		var p thread.Waiting
		if json.Unmarshal(e.Payload, &p) == nil && slices.Contains(p.Chats, t.chat) {
			t.Over, t.Outcome = true, p.Outcome
			if p.Outcome != string(outcome.Completed) {
				t.Status = 1
			}
			return
		}
	case sig.Type == thread.TypeRefused:
		var p thread.ChatRefused
		if json.Unmarshal(e.Payload, &p) == nil && p.Chat == t.chat {
			t.Over, t.Status, t.Why = true, StatusNoTurn, "the chat was refused: "+p.Reason
			return
		}
	case !sig.Signal():
		p, _ := thread.ParseMirrored(e.Payload)
		if latest, is := t.Fold.Latest(); is && p.Names() && slices.Contains(p.Named(), t.chat) {
			t.delivered, t.run = true, latest.ID
		}
	}
	run, there := t.Fold.Run(t.run)
	switch {
	case !there, run.Status == thread.StatusRunning:
	case t.delivered:
		t.Over, t.Outcome, t.Status = true, run.Status, ExitStatus(&t.Fold, t.run)
	case run.Cause != nil && run.Cause.ErrorClass == outcome.ClassLaunch:
		t.Over, t.Status = true, StatusNoTurn
		t.Why = fmt.Sprintf("run %s was not launched, and its agent has not had the chat: %s", t.run, run.Cause.Message)
	default:
		t.Over, t.Status = true, StatusNoTurn
		t.Why = fmt.Sprintf("run %s ended before its agent had the chat: the next run with --resume gets it", t.run)
	}
}
