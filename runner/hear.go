package runner

import (
	"fmt"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/live"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// read reads what the agent has recorded and printed. The session is read first: where it has a message, stdout has the
// beginning of the turn.
func (c *conversation) read() {
	c.readSession()
	c.journal.view(func(l *live.Ledger) { c.open = len(l.Open()) })
	if err := c.follower.read(false); err != nil {
		c.Log.Debug("read the agent's stdout", "error", err)
	}
	if c.findSession() { // it may have what the agent reports to have taken in
		c.readSession()
	}
	talk, events, idles := c.follower.conversation()
	if talk.Busy && !c.talk.Busy {
		c.tried = false
	}
	c.talk = talk
	c.busy.Store(talk.Busy)
	c.idles = idles
	for _, ev := range events {
		c.changed = runfolder.Clock()
		c.hear(ev)
	}
	if talk.Busy { // it has begun the next turn at once, and does not wait
		c.turnOver = 0
	}
	c.settle()
}

// readSession reads the lines of the session that are new.
func (c *conversation) readSession() {
	if err := c.trail.Look(false); err != nil {
		c.Log.Debug("read session", "error", err)
	}
}

// hear takes an event of the agent's stdout. A worker that takes over may get one again.
func (c *conversation) hear(ev harness.Event) {
	var records []live.Record
	var sent, refused *live.Sent
	c.journal.view(func(l *live.Ledger) {
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
			c.hold = runfolder.Clock() + holdFor
		} else {
			c.refuse(refused.Chat, "the agent does not take it: "+ev.Reason)
		}
	}
	if len(records) > 0 {
		if err := c.journal.note(records...); err != nil {
			c.Log.Warn("record what the agent does with a message", "error", err)
		}
	}
	if sent != nil {
		c.reached("accepted", sent.Chat)
	}
	if ev.Answered != "" {
		c.answered[ev.Answered] = true
		if ev.Answered == c.doubt.barrier {
			c.doubt.answers, c.doubt.barrier = c.doubt.answers+1, ""
		}
	}
	if ev.Request != nil {
		c.replies = append(c.replies, *ev.Request)
	}
	if ev.Idle {
		// A worker that takes over may read the end of a turn that is noted.
		c.journal.view(func(l *live.Ledger) {
			if c.idles > l.Idles {
				c.turnOver = runfolder.Clock()
			}
		})
	}
	if ev.OpenError != "" {
		c.fail("it can't open its session: " + ev.OpenError)
	}
}

// settle notes the end of a turn once the session has its last lines.
func (c *conversation) settle() {
	var open int
	var interrupted, late bool
	c.journal.view(func(l *live.Ledger) {
		open, interrupted = max(c.open, len(l.Open())), l.Interrupted
		late = len(l.Turn) > 0 && c.idles > l.Idles && !c.talk.Busy // its lines came after all
	})
	if c.turnOver == 0 && !late {
		return
	}
	if !(c.follower.over() && (open == 0 || interrupted)) && runfolder.Clock()-c.turnOver < settleFor {
		return
	}
	c.turnOver = 0
	c.noteTurn()
}

// noteTurn notes that a turn has ended, and what the thread gets for it.
func (c *conversation) noteTurn() {
	_, line := c.trail.Tallied()
	left := c.left()
	var chats []string
	var same, interrupted bool
	n := 0
	c.journal.view(func(l *live.Ledger) {
		chats, n, interrupted = append(chats, l.Turn...), l.Turns+1, l.Interrupted
		same = len(chats) == 0 && line <= max(l.TurnLine, c.record.From.Index) // an extension's command, mostly
	})
	if same {
		return
	}
	v := outcome.Decide(outcome.Facts{
		Turn: c.follower.turn(), Exit: outcome.ExitCode(0), Interrupted: interrupted,
	})
	if chats == nil {
		chats = []string{}
	}
	e := c.entry(fmt.Sprintf("%s.waiting.%d", c.RunID, n-1), thread.Waiting{
		Signal: c.signal(thread.TypeWaiting), Turn: n, Outcome: string(v.Outcome), StopReason: v.StopReason,
		Chats: chats, Pending: left,
	})
	err := c.journal.note(live.Record{Op: live.OpTurn, Line: line, Chats: chats, Idles: c.idles}, postRecord(e, line))
	if err != nil {
		c.Log.Warn("record the end of a turn", "error", err)
	}
	notify(c.posts)
	c.Log.Info("turn ended", "turn", n, "outcome", v.Outcome, "stop_reason", v.StopReason, "chats", len(chats),
		"pending", left)
}

// save saves the state of the conversation, so that the beginning of stdout is not needed any more.
func (c *conversation) save() {
	h, whole := c.follower.talkState()
	if !whole || len(c.replies) > 0 || h.At-c.saved < saveEvery {
		return
	}
	if err := writeTalk(c.folder.Path, h); err != nil {
		c.Log.Debug("save the conversation", "error", err)
		return
	}
	c.saved = h.At
	c.stdout.Store(h.At)
}
