package runner

import (
	"fmt"
	"path/filepath"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/live"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// read reads what the agent has recorded and printed. The session is read first: where it has a message, stdout has the
// beginning of the turn.
func (t *talker) read() {
	t.readSession()
	t.journal.view(func(l *live.Ledger) { t.open = len(l.Open()) })
	if err := t.run.follower.read(false); err != nil {
		t.run.Log.Debug("read the agent's stdout", "error", err)
	}
	if t.run.findSession() { // it may have what the agent reports to have taken in
		t.readSession()
	}
	talk, events, idles := t.run.follower.conversation()
	if talk.Busy && !t.talk.Busy {
		t.tried = false
	}
	t.talk = talk
	t.shared.busy.Store(talk.Busy)
	t.idles = idles
	for _, ev := range events {
		t.changed = runfolder.Clock()
		t.event(ev)
	}
	if talk.Busy { // it has begun the next turn at once, and does not wait
		t.turnOver = 0
	}
	t.settle()
	t.forgetDone()
}

// readSession reads the lines of the session that are new.
func (t *talker) readSession() {
	if err := t.run.trail.Look(false); err != nil {
		t.run.Log.Debug("read session", "error", err)
	}
}

// event takes an event of the agent's stdout. A worker that takes over may get one again.
func (t *talker) event(ev harness.Event) {
	t.noteMessages(ev)
	if ev.Answered != "" {
		t.answered[ev.Answered] = true
		if ev.Answered == t.doubt.barrier {
			t.doubt.answers, t.doubt.barrier = t.doubt.answers+1, ""
		}
	}
	if ev.Request != nil {
		t.replies = append(t.replies, *ev.Request)
	}
	if ev.Idle {
		// A worker that takes over may read the end of a turn that is noted.
		t.journal.view(func(l *live.Ledger) {
			if t.idles > l.Idles {
				t.turnOver = runfolder.Clock()
			}
		})
	}
	if ev.OpenError != "" {
		t.fail("it can't open its session: " + ev.OpenError)
	}
}

// noteMessages notes what the agent does with the messages that it was given.
func (t *talker) noteMessages(ev harness.Event) {
	var records []live.Record
	var sent, refused *live.Sent
	t.journal.view(func(l *live.Ledger) {
		sent, refused = l.Find(ev.Accepted), l.Find(ev.Refused)
		for _, id := range ev.Dropped {
			if s := l.Find(id); s != nil && !s.Taken && !s.Back {
				records = append(records, live.Record{Op: live.OpBack, ID: id})
			}
		}
	})
	if sent != nil && !sent.Accepted {
		records = append(records, live.Record{Op: live.OpAccepted, ID: sent.ID})
	}
	if refused != nil && !refused.Taken && !refused.Back {
		if ev.Again && refused.Attempt < mostPuts {
			records = append(records, live.Record{Op: live.OpBack, ID: refused.ID})
			t.hold = runfolder.Clock() + holdFor
		} else {
			t.refuse(refused.Chat, "the agent does not take it: "+ev.Reason)
		}
	}
	if len(records) > 0 {
		t.note("what the agent does with a message", records...)
	}
	if sent != nil {
		t.reached("accepted", sent.Chat)
	}
}

// settle notes the end of a turn once the session has its last lines.
func (t *talker) settle() {
	var open int
	var interrupted, late bool
	t.journal.view(func(l *live.Ledger) {
		open, interrupted = max(t.open, len(l.Open())), l.Interrupted
		late = len(l.Turn) > 0 && t.idles > l.Idles && !t.talk.Busy // its lines came after all
	})
	if t.turnOver == 0 && !late {
		return
	}
	if !(t.run.follower.over() && (open == 0 || interrupted)) && runfolder.Clock()-t.turnOver < settleFor {
		return
	}
	t.turnOver = 0
	t.noteTurn()
}

// noteTurn notes that a turn has ended, and what the thread gets for it.
func (t *talker) noteTurn() {
	_, line := t.run.trail.Tallied()
	left := t.forgetDone()
	var chats []string
	var same, interrupted bool
	n := 0
	t.journal.view(func(l *live.Ledger) {
		chats, n, interrupted = append(chats, l.Turn...), l.Turns+1, l.Interrupted
		same = len(chats) == 0 && line <= max(l.TurnLine, t.run.record.From.Index) // an extension's command, mostly
	})
	if same {
		return
	}
	v := outcome.Decide(outcome.Facts{
		Turn: t.run.follower.turn(), Exit: outcome.ExitCode(0), Interrupted: interrupted,
	})
	if chats == nil {
		chats = []string{}
	}
	e := t.run.entry(fmt.Sprintf("%s.waiting.%d", t.run.RunID, n-1), thread.Waiting{
		Signal: t.run.signal(thread.TypeWaiting), Turn: n, Outcome: string(v.Outcome), StopReason: v.StopReason,
		Chats: chats, Pending: left,
	})
	turn := live.Record{Op: live.OpTurn, Line: line, Chats: chats, Idles: t.idles}
	t.note("the end of a turn", turn, postRecord(e, line))
	notify(t.posts)
	t.run.Log.Info("turn ended", "turn", n, "outcome", v.Outcome, "stop_reason", v.StopReason, "chats", len(chats),
		"pending", left)
}

// save saves the state of the conversation, so that the beginning of stdout is not needed any more.
func (t *talker) save() {
	h, whole := t.run.follower.talkState()
	if !whole || len(t.replies) > 0 || h.At-t.saved < saveEvery {
		return
	}
	// Without a sync: after a crash of the machine there is no agent.
	if err := writeJSON(filepath.Join(t.run.Folder.Path, talkFile), h); err != nil {
		t.run.Log.Debug("save the conversation", "error", err)
		return
	}
	t.saved = h.At
	t.shared.stdout.Store(h.At)
}
