package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/live"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// act does what was decided, and reports whether there may be more to do at once.
func (c *conversation) act(ctx context.Context, a live.Action) (more bool) {
	switch a.Do {
	case live.Wait:
		c.overdue()
		return false
	case live.Open:
		c.openSent = true
		return c.write(ctx, c.spec.Open(c.talk, c.task(), c.Cwd)...)
	case live.Reply:
		return c.reply(ctx)
	case live.Ask:
		c.doubt.asked++
		c.doubt.barrier = newID()
		return c.write(ctx, c.spec.Barrier(c.talk, c.doubt.barrier))
	case live.Resolve:
		return c.resolve(ctx)
	case live.Put:
		return c.put(ctx, a.Chat)
	case live.Interrupt:
		return c.interrupt(ctx, a.Chat)
	case live.Read:
		c.readTail(ctx)
	case live.Close:
		c.closeInput()
	case live.Stop:
		c.fail("a runner died while it wrote a chat that is longer than the pipe to the agent")
	}
	return true
}

// overdue ends an agent that does not end with its input.
func (c *conversation) overdue() {
	if action, why := c.endedBy(); c.closed != 0 && action != outcome.ActionNone &&
		runfolder.Clock()-c.closed > closeFor {
		c.end(cause{action, why})
	}
}

// write writes lines to the agent, in one piece where they fit into the pipe. It reports success.
func (c *conversation) write(ctx context.Context, lines ...[]byte) bool {
	b := append(bytes.Join(lines, []byte{'\n'}), '\n')
	for len(b) > 0 && ctx.Err() == nil {
		n, err := c.in.write(b)
		if err != nil {
			c.fail(err.Error())
			return false
		}
		if b = b[n:]; len(b) > 0 {
			pause.For(ctx, pipePoll)
		}
	}
	return len(b) == 0
}

// put gives the agent a chat.
func (c *conversation) put(ctx context.Context, id string) bool {
	chat, err := c.content(ctx, id)
	if err != nil {
		c.Log.Warn("read a chat again; retrying", "chat", id, "error", err)
		c.hold = runfolder.Clock() + holdFor
		return false
	}
	attempt := 0
	c.journal.view(func(l *live.Ledger) { attempt = l.Attempts(id) })
	m := harness.Message{ID: harness.MessageID(c.RunID+" "+id, attempt), Text: chat.Text, Images: imagesOf(chat)}
	if why := c.spec.Unfit(m); why != "" {
		c.refuse(id, why)
		return true
	}
	line := c.spec.Put(c.talk, m)
	_, next := c.trail.Tallied()
	record := live.Record{
		Op: live.OpPut, ID: m.ID, Chat: id, Line: max(next, c.record.From.Index), Attempt: attempt,
		Text: m.Text, Images: len(m.Images), Long: !c.in.fits(append(line, '\n')),
	}
	if id == promptID(c.RunID) && c.Prompt != "" {
		record.Text, record.Prompt, record.Sum = "", true, live.TextSum(m.Text)
	}
	c.reached("not recorded", id)
	if err := c.journal.sync(record); err != nil {
		c.Log.Warn("record a chat before the agent gets it; retrying", "chat", id, "error", err)
		c.hold = runfolder.Clock() + holdFor
		return false
	}
	c.skipped, c.changed = "", runfolder.Clock()
	c.Log.Debug("giving the agent a chat", "chat", id, "attempt", attempt)
	c.reached("recorded", id)
	if !c.write(ctx, line) {
		return false
	}
	c.reached("written", id)
	if record.Long {
		if err := c.journal.note(live.Record{Op: live.OpThrough, ID: m.ID}); err != nil {
			c.Log.Warn("record that a chat is written", "error", err)
		}
	}
	return true
}

// content returns a chat with its text and images.
func (c *conversation) content(ctx context.Context, id string) (chat thread.PendingChat, err error) {
	c.mu.Lock()
	i := slices.IndexFunc(c.pending.Chats(), func(chat thread.PendingChat) bool { return chat.ID == id })
	if i >= 0 {
		chat = c.pending.Chats()[i]
	}
	c.mu.Unlock()
	if i < 0 || chat.Omitted {
		e, found, err := c.Client.EntryWithin(ctx, id, c.Timeout)
		if err != nil || !found {
			return chat, errors.Join(err, fmt.Errorf("entry %s: found %v", id, found))
		}
		chat = thread.ParseInput(e)
	}
	if id == promptID(c.RunID) && c.Prompt != "" {
		chat.Text = c.Prompt // the thread's has no secrets, and may be cut
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
func (c *conversation) interrupt(ctx context.Context, chat string) bool {
	c.tried = chat == ""
	id := harness.MessageID(newID(), 0)
	lines := c.spec.Interrupt(c.talk, id)
	if lines == nil {
		c.skipped = chat
		return chat != ""
	}
	if err := c.journal.sync(live.Record{Op: live.OpInterrupt, ID: id, Chat: chat}); err != nil {
		c.Log.Warn("record an interrupt; retrying", "error", err)
		c.hold = runfolder.Clock() + holdFor
		return false
	}
	c.Log.Info("interrupting the agent's turn", "chat", chat)
	c.changed = runfolder.Clock()
	c.reached("interrupt recorded", chat)
	if !c.write(ctx, lines...) {
		return false
	}
	c.reached("interrupt written", chat)
	return true
}

// reply answers the agent's oldest request, and posts that.
func (c *conversation) reply(ctx context.Context) bool {
	req := c.replies[0]
	n, known := 0, false
	c.journal.view(func(l *live.Ledger) {
		if n, known = l.Requests[req.ID]; !known {
			n = len(l.Requests)
		}
	})
	if n >= mostAnswers {
		c.fail(fmt.Sprintf("it has asked %d questions that nobody is there to answer", mostAnswers))
		return false
	}
	c.replies = c.replies[1:]
	if known { // an earlier worker has answered it, or was about to
		return c.write(ctx, req.Reply)
	}
	c.Log.Info("answering a request of the agent", "kind", req.Kind, "outcome", req.Decision)
	e := c.entry(fmt.Sprintf("%s.asked.%d", c.RunID, n), thread.Asked{
		Signal: c.signal(thread.TypeAsked), Kind: req.Kind, Text: c.Redact.Text(req.Text), Outcome: req.Decision,
	})
	if err := c.journal.note(live.Record{Op: live.OpAsked, ID: req.ID}, postRecord(e, 0)); err != nil {
		c.Log.Warn("record a request of the agent", "error", err)
	}
	notify(c.posts)
	return c.write(ctx, req.Reply)
}

// resolve ends a doubt, after the barriers: what the agent has read of the pipe it has answered.
func (c *conversation) resolve(ctx context.Context) bool {
	was := c.doubt
	c.doubt = doubt{tries: was.tries}
	c.changed = runfolder.Clock()
	var open []live.Sent
	interrupt := ""
	c.journal.view(func(l *live.Ledger) {
		for _, s := range l.Open() {
			open = append(open, *s)
		}
		interrupt = l.Interrupt[0]
	})
	if was.takeover && interrupt != "" && !c.answered[interrupt] { // it was not written
		if err := c.journal.note(live.Record{Op: live.OpInterrupt}); err != nil {
			c.Log.Warn("record that an interrupt was not written", "error", err)
		}
	}
	for _, s := range open {
		switch {
		case !s.Accepted && was.takeover: // it was not written
			c.Log.Info("giving the agent a chat that an earlier worker did not write", "chat", s.Chat)
			return c.repeat(ctx, s)
		case s.Accepted && !was.takeover && !c.talk.Busy:
			c.lost(s)
		}
	}
	return true
}

// repeat writes a message that the journal has already.
func (c *conversation) repeat(ctx context.Context, s live.Sent) bool {
	m := s.Message
	if chat, err := c.content(ctx, s.Chat); err == nil {
		m.Images = imagesOf(chat)
		if m.Text == "" {
			m.Text = chat.Text
		}
	} else if len(m.Images) > 0 || m.Text == "" {
		c.Log.Warn("read a chat again; retrying", "chat", s.Chat, "error", err)
		if err := c.journal.note(live.Record{Op: live.OpBack, ID: s.ID}); err != nil {
			c.Log.Warn("record that a chat was not written", "error", err)
		}
		return true
	}
	return c.write(ctx, c.spec.Put(c.talk, m))
}

// lost handles a message that an idle agent has accepted, and has no record of.
func (c *conversation) lost(s live.Sent) {
	c.doubt.tries++
	switch {
	case c.spec.Handles:
		c.drop(live.OpHandled, s.Chat, "an extension of the agent has handled it: the session has no record of it")
	case c.talk.Queued(s.ID):
		if err := c.journal.note(live.Record{Op: live.OpBack, ID: s.ID}); err != nil {
			c.Log.Warn("record that a chat is lost", "error", err)
		}
	case c.doubt.tries >= lostTries:
		c.refuse(s.Chat, "the agent has accepted it, and its session has no record of it")
	}
}

// refuse notes that a chat can never arrive.
func (c *conversation) refuse(chat, reason string) { c.drop(live.OpRefused, chat, reason) }

// drop notes that no line of the session will ever have a chat.
func (c *conversation) drop(op live.Op, chat, reason string) {
	n, reason := 0, c.Redact.Text(reason)
	c.journal.view(func(l *live.Ledger) { n = l.Refused })
	e := c.entry(fmt.Sprintf("%s.refused.%d", c.RunID, n), thread.ChatRefused{
		Signal: c.signal(thread.TypeRefused), Chat: chat, Reason: reason,
	})
	if err := c.journal.sync(live.Record{Op: op, Chat: chat, Why: reason}, postRecord(e, 0)); err != nil {
		c.Log.Warn("record a refused chat", "error", err)
		return
	}
	c.Log.Warn("chat refused", "chat", chat, "reason", reason)
	notify(c.posts)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending.Drop(chat)
}

// closeInput ends the agent's input.
func (c *conversation) closeInput() {
	c.mu.Lock()
	if c.aborting == 0 && c.ended == outcome.ActionNone {
		c.ended, c.endedWhy = outcome.ActionEnd, c.finish
		if c.endedWhy == "" {
			c.endedWhy = fmt.Sprintf("no chat came for %v", c.Idle)
		}
		c.note(runfolder.Fact{Fact: runfolder.FactAction, Action: c.ended, Why: c.endedWhy})
		c.Log.Info("ending the agent's input", "why", c.endedWhy)
	}
	c.mu.Unlock()
	c.note(runfolder.Fact{Fact: runfolder.FactClosed})
	c.tellKeeper()
	if err := c.in.close(); err != nil {
		c.Log.Warn("close the agent's input", "error", err)
	}
	c.closed = runfolder.Clock()
	close(c.shut)
}

func (c *conversation) tellKeeper() {
	if c.CloseInput == nil {
		return
	}
	if err := c.CloseInput(); err != nil { // it is dead, and its end closed
		c.Log.Debug("have the keeper close the agent's input", "error", err)
	}
}

// postRecord is the record of an entry to post once the lines before line are on the thread.
func postRecord(e thread.Entry, line int) live.Record {
	return live.Record{Op: live.OpPost, ID: e.ID, Line: line, Entry: e.AppendJSON(nil)}
}

// postOn posts the conversation's entries as they come, until ctx is done.
func (c *conversation) postOn(ctx context.Context) error {
	logged := ""
	for wait := time.Duration(0); ; {
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.posts:
		case <-timer:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.run.opened:
		}
		wait = 0
		err := c.post(ctx, c.trail.Next())
		switch {
		case errors.Is(err, errLinesFirst):
			wait = postPoll
		case err != nil && ctx.Err() == nil:
			if wait = retryPost; err.Error() != logged {
				c.Log.Warn("post an entry of the live run; retrying", "error", err)
				logged = err.Error()
			}
		}
	}
}

// Waits before the next try to post.
const (
	postPoll  = 50 * time.Millisecond // where lines come first
	retryPost = 2 * time.Second       // after an error
)

// errLinesFirst: lines come before the next entry.
var errLinesFirst = errors.New("lines are to be posted first")

// postAll posts all that is left. The run's lines are on the thread.
func (c *conversation) postAll(ctx context.Context) error {
	if c == nil {
		return nil
	}
	return c.post(ctx, int(^uint(0)>>1))
}

// post posts the entries whose lines are before posted.
func (c *conversation) post(ctx context.Context, posted int) error {
	var posts []live.Post
	c.journal.view(func(l *live.Ledger) { posts = slices.Clone(l.Posts) })
	for _, p := range posts {
		if p.Line > posted {
			return errLinesFirst
		}
		var e thread.Entry
		if err := json.Unmarshal(p.Entry, &e); err != nil {
			return err
		}
		_, err := c.run.post(ctx, []thread.Entry{e})
		var se *thread.StatusError
		if errors.As(err, &se) {
			switch se.Status {
			case http.StatusConflict: // it is there, from a worker before
				err = nil
			case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
				c.Log.Warn("the server refused an entry of the live run", "id", e.ID, "error", err)
				err = nil
			}
		}
		if err != nil {
			return err
		}
		if err := c.journal.note(live.Record{Op: live.OpPosted, ID: p.ID}); err != nil {
			c.Log.Warn("record a posted entry", "error", err)
		}
	}
	if err := c.journal.compact(); err != nil {
		c.Log.Warn("shorten the journal", "error", err)
	}
	return nil
}

// writeTalk writes the file that readTalk reads. It does not sync: after a crash of the machine there is no agent.
func writeTalk(folder string, h talkState) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return runfolder.Replace(filepath.Join(folder, talkFile), b)
}

// endWhy is the reason of a request to end, for people.
func endWhy(author string) string {
	return strings.TrimSuffix("the end was requested by "+author, " by ")
}
