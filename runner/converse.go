package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/live"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// act does what was decided, and reports whether there may be more to do at once.
func (t *talker) act(ctx context.Context, a live.Action) (more bool) {
	switch a.Do {
	case live.Wait:
		t.overdue()
		return false
	case live.Open:
		t.openSent = true
		return t.write(ctx, t.spec.Open(t.talk, t.run.task(), t.run.Cwd)...)
	case live.Reply:
		return t.reply(ctx)
	case live.Ask:
		t.doubt.asked++
		t.doubt.barrier = NewID()
		return t.write(ctx, t.spec.Barrier(t.talk, t.doubt.barrier))
	case live.Resolve:
		return t.resolve(ctx)
	case live.Put:
		return t.put(ctx, a.Chat)
	case live.Interrupt:
		return t.interrupt(ctx, a.Chat)
	case live.Read:
		t.readTail(ctx)
	case live.Close:
		t.closeInput()
	case live.Stop:
		t.fail("a runner died while it wrote a chat that is longer than the pipe to the agent")
	}
	return true
}

// overdue ends an agent that does not end with its input.
func (t *talker) overdue() {
	if action, why := t.endedBy(); t.closed != 0 && action != outcome.ActionNone &&
		runfolder.Clock()-t.closed > closeFor {
		t.run.end(cause{action, why})
	}
}

// write writes lines to the agent, in one piece where they fit into the pipe. It reports success.
func (t *talker) write(ctx context.Context, lines ...[]byte) bool {
	b := append(bytes.Join(lines, []byte{'\n'}), '\n')
	for len(b) > 0 && ctx.Err() == nil {
		n, err := t.input.Write(b)
		if err != nil {
			t.fail(err.Error())
			return false
		}
		if b = b[n:]; len(b) > 0 {
			pause.For(ctx, pipePoll)
		}
	}
	return len(b) == 0
}

// put gives the agent a chat.
func (t *talker) put(ctx context.Context, id string) bool {
	chat, err := t.content(ctx, id)
	if err != nil {
		t.run.Log.Warn("read a chat again; retrying", "chat", id, "error", err)
		t.hold = runfolder.Clock() + holdFor
		return false
	}
	attempt := 0
	t.journal.view(func(l *live.Ledger) { attempt = l.Attempts(id) })
	m := harness.Message{ID: harness.MessageID(t.run.RunID+" "+id, attempt), Text: chat.Text, Images: imagesOf(chat)}
	if why := t.spec.Unfit(m); why != "" {
		t.refuse(id, why)
		return true
	}
	line := t.spec.Put(t.talk, m)
	_, next := t.run.trail.Tallied()
	record := live.Record{
		Op: live.OpPut, ID: m.ID, Chat: id, Line: max(next, t.run.record.From.Index), Attempt: attempt,
		Text: m.Text, Images: len(m.Images), Long: !t.input.Fits(append(line, '\n')),
	}
	if t.isPrompt(id) {
		record.Text, record.Prompt, record.Sum = "", true, live.TextSum(m.Text)
	}
	t.reached("not recorded", id)
	if err := t.journal.sync(record); err != nil {
		t.run.Log.Warn("record a chat before the agent gets it; retrying", "chat", id, "error", err)
		t.hold = runfolder.Clock() + holdFor
		return false
	}
	t.skipped, t.changed = "", runfolder.Clock()
	t.run.Log.Debug("giving the agent a chat", "chat", id, "attempt", attempt)
	t.reached("recorded", id)
	if !t.write(ctx, line) {
		return false
	}
	t.reached("written", id)
	if record.Long {
		t.note("that a chat is written", live.Record{Op: live.OpThrough, ID: m.ID})
	}
	return true
}

// content returns a chat with its text and images.
func (t *talker) content(ctx context.Context, id string) (chat thread.PendingChat, err error) {
	chat, found := t.shared.chat(id)
	if !found || chat.Omitted {
		if chat, err = t.run.readChat(ctx, id); err != nil {
			return chat, err
		}
	}
	if t.isPrompt(id) {
		chat.Text = t.run.Prompt // the thread's has no secrets, and may be cut
	}
	if chat.Text == "" {
		chat.Text = imageText
	}
	return chat, nil
}

// imageText is the text of a message with images alone: claude-code's provider refuses an empty one.
const imageText = "[image]"

func imagesOf(chat thread.PendingChat) (images []harness.Image) {
	for _, block := range chat.Images {
		var i harness.Image
		if json.Unmarshal(block, &i) == nil { // Pending has read it
			images = append(images, i)
		}
	}
	return images
}

// interrupt ends the running turn, for a chat or to end the run.
func (t *talker) interrupt(ctx context.Context, chat string) bool {
	t.tried = chat == ""
	id := harness.MessageID(NewID(), 0)
	lines := t.spec.Interrupt(t.talk, id)
	if lines == nil {
		t.skipped = chat
		return chat != ""
	}
	if err := t.journal.sync(live.Record{Op: live.OpInterrupt, ID: id, Chat: chat}); err != nil {
		t.run.Log.Warn("record an interrupt; retrying", "error", err)
		t.hold = runfolder.Clock() + holdFor
		return false
	}
	t.run.Log.Info("interrupting the agent's turn", "chat", chat)
	t.changed = runfolder.Clock()
	t.reached("interrupt recorded", chat)
	if !t.write(ctx, lines...) {
		return false
	}
	t.reached("interrupt written", chat)
	return true
}

// reply answers the agent's oldest request, and posts that.
func (t *talker) reply(ctx context.Context) bool {
	req := t.replies[0]
	n, known := 0, false
	t.journal.view(func(l *live.Ledger) {
		if n, known = l.Requests[req.ID]; !known {
			n = len(l.Requests)
		}
	})
	if n >= mostAnswers {
		t.fail(fmt.Sprintf("it has asked %d questions that nobody is there to answer", mostAnswers))
		return false
	}
	t.replies = t.replies[1:]
	if known { // an earlier worker has answered it, or was about to
		return t.write(ctx, req.Reply)
	}
	t.run.Log.Info("answering a request of the agent", "kind", req.Kind, "outcome", req.Decision)
	e := t.run.entry(fmt.Sprintf("%s.asked.%d", t.run.RunID, n), thread.Asked{
		Signal: t.run.signal(thread.TypeAsked), Kind: req.Kind, Text: t.run.Redact.Text(req.Text),
		Outcome: req.Decision,
	})
	t.note("a request of the agent", live.Record{Op: live.OpAsked, ID: req.ID}, postRecord(e, 0))
	notify(t.posts)
	return t.write(ctx, req.Reply)
}

// resolve ends a doubt, after the barriers: what the agent has read of the pipe it has answered.
func (t *talker) resolve(ctx context.Context) bool {
	was := t.doubt
	t.doubt = doubt{tries: was.tries}
	t.changed = runfolder.Clock()
	var open []live.Sent
	interrupt := ""
	t.journal.view(func(l *live.Ledger) {
		for _, s := range l.Open() {
			open = append(open, *s)
		}
		interrupt = l.Interrupt[0]
	})
	if was.takeover && interrupt != "" && !t.answered[interrupt] { // it was not written
		t.note("that an interrupt was not written", live.Record{Op: live.OpInterrupt})
	}
	for _, s := range open {
		switch {
		case !s.Accepted && was.takeover: // it was not written
			t.run.Log.Info("giving the agent a chat that an earlier worker did not write", "chat", s.Chat)
			return t.repeat(ctx, s)
		case s.Accepted && !was.takeover && !t.talk.Busy:
			t.lost(s)
		}
	}
	return true
}

// repeat writes a message that the journal has already.
func (t *talker) repeat(ctx context.Context, s live.Sent) bool {
	m := s.Message
	if chat, err := t.content(ctx, s.Chat); err == nil {
		m.Images = imagesOf(chat)
		if m.Text == "" {
			m.Text = chat.Text
		}
	} else if len(m.Images) > 0 || m.Text == "" {
		t.run.Log.Warn("read a chat again; retrying", "chat", s.Chat, "error", err)
		t.note("that a chat was not written", live.Record{Op: live.OpBack, ID: s.ID})
		return true
	}
	return t.write(ctx, t.spec.Put(t.talk, m))
}

// lost handles a message that an idle agent has accepted, and has no record of.
func (t *talker) lost(s live.Sent) {
	t.doubt.tries++
	switch {
	case t.spec.Handles:
		t.drop(live.OpHandled, s.Chat, "an extension of the agent has handled it: the session has no record of it")
	case t.talk.Queued(s.ID):
		t.note("that a chat is lost", live.Record{Op: live.OpBack, ID: s.ID})
	case t.doubt.tries >= lostTries:
		t.refuse(s.Chat, "the agent has accepted it, and its session has no record of it")
	}
}

// refuse notes that a chat can never arrive.
func (t *talker) refuse(chat, reason string) { t.drop(live.OpRefused, chat, reason) }

// drop notes that no line of the session will ever have a chat.
func (t *talker) drop(op live.Op, chat, reason string) {
	n, reason := 0, t.run.Redact.Text(reason)
	t.journal.view(func(l *live.Ledger) { n = l.Refused })
	e := t.run.entry(fmt.Sprintf("%s.refused.%d", t.run.RunID, n), thread.ChatRefused{
		Signal: t.run.signal(thread.TypeRefused), Chat: chat, Reason: reason,
	})
	if err := t.journal.sync(live.Record{Op: op, Chat: chat, Why: reason}, postRecord(e, 0)); err != nil {
		t.run.Log.Warn("record a refused chat", "error", err)
		return
	}
	t.run.Log.Warn("chat refused", "chat", chat, "reason", reason)
	notify(t.posts)
	t.shared.drop(chat)
}

// closeInput ends the agent's input.
func (t *talker) closeInput() {
	t.shared.end(fmt.Sprintf("no chat came for %v", t.run.Idle), func(action outcome.Action, why string) {
		t.run.note(runfolder.Fact{Fact: runfolder.FactAction, Action: action, Why: why})
		t.run.Log.Info("ending the agent's input", "why", why)
	})
	t.run.note(runfolder.Fact{Fact: runfolder.FactClosed})
	t.closeKeeper()
	if err := t.input.Close(); err != nil {
		t.run.Log.Warn("close the agent's input", "error", err)
	}
	t.closed = runfolder.Clock()
}

// closeKeeper has the keeper close its end of the agent's input.
func (t *talker) closeKeeper() {
	if t.run.CloseInput == nil {
		return
	}
	if err := t.run.CloseInput(); err != nil { // it is dead, and its end closed
		t.run.Log.Debug("have the keeper close the agent's input", "error", err)
	}
}
