package runner

import (
	"context"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/runner/live"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/runner/stdio"
	"arbe.0sk.ar/runner/thread"
)

// talker is the loop of a conversation: it reads what the agent has recorded and printed, and does what live.Next
// decides, until that decides to wait. Its fields are the loop's own.
type talker struct {
	*conversation
	talk     harness.Talk
	openSent bool // the lines that open the session are written
	answered map[string]bool
	replies  []harness.Request
	open     int           // messages that no line of the session had when stdout was last read
	idles    int           // how often the agent has become idle
	turnOver time.Duration // when a turn has ended whose lines are not counted yet: clock; 0: none
	doubt    doubt
	skipped  string        // the chat for which there was no turn to interrupt
	tried    bool          // the turn was interrupted to end the run
	hold     time.Duration // nothing is put before: clock
	rested   time.Duration // since when the agent waits: clock
	changed  time.Duration // when the agent last did anything about its input: clock
	closed   time.Duration // when its input ended: clock; 0: it has not
	saved    int64         // place in stdout of the saved state
}

// doubt is a question that only barriers answer.
type doubt struct {
	is       bool
	takeover bool // an earlier worker may have written the last message
	asked    int
	answers  int
	barrier  string // id of the one that is written
	tries    int    // doubts in a row about messages without a record
}

// Intervals and limits of a conversation.
const (
	settleFor   = 2 * time.Second       // at most, for the last lines of a turn
	lostAfter   = 2 * time.Second       // a message that an idle agent has no record of is looked for
	lostTries   = 5                     // times
	pipePoll    = 10 * time.Millisecond // between two looks at a pipe that the agent has not read
	firstRead   = 5 * time.Minute       // an agent without a chat waits for the first read of the thread
	closeFor    = 10 * time.Second      // from the end of its input to the end of an idle agent
	holdFor     = time.Second           // before a refused message is put again
	mostPuts    = 20                    // of one chat
	mostAnswers = 1000                  // requests of the agent
	saveEvery   = 256 << 10             // bytes of stdout between two saved states
)

func newTalker(c *conversation) *talker {
	now := runfolder.Clock()
	return &talker{conversation: c, answered: map[string]bool{}, rested: now, changed: now}
}

// takeOver prepares the conversation with the agent of an earlier worker.
func (t *talker) takeOver() {
	if t.run.progress.Closed {
		t.closed = runfolder.Clock()
		t.closeKeeper()
		return
	}
	var err error
	if t.input, err = stdio.OpenInput(t.run.Folder.Path); err != nil {
		t.fail("open its input: " + err.Error())
		return
	}
	lost := false
	t.journal.view(func(l *live.Ledger) {
		lost = l.Agents == 0
		t.doubt.is = l.Interrupt[0] != ""
		for _, s := range l.Open() {
			t.doubt.is = t.doubt.is || !s.Accepted
		}
	})
	t.doubt.takeover = t.doubt.is
	if lost {
		t.fail("the journal of its input is gone")
	}
}

// reached is for tests: a worker may die here.
func (t *talker) reached(place, chat string) {
	if reached := t.run.intervals.reached; reached != nil {
		reached(place, chat)
	}
}

// loop converses until ctx is done.
func (t *talker) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		again := t.pass(ctx)
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
		case <-t.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// pass reads and acts until there is something to wait for, and returns how long at most.
func (t *talker) pass(ctx context.Context) (wait time.Duration) {
	for ctx.Err() == nil {
		t.read()
		t.save()
		if t.shared.failed.Load() {
			return t.run.intervals.lookEvery
		}
		now := runfolder.Clock()
		s, behind, err := t.state(now)
		if err != nil {
			t.fail(err.Error())
			return t.run.intervals.lookEvery
		}
		if t.missing(s, now) {
			t.doubt = doubt{is: true, tries: t.doubt.tries}
			continue
		}
		next := live.Next(s)
		if next.Do != live.Wait && next.Do != live.Read {
			t.run.Log.Debug("conversation", "do", string(next.Do), "chat", next.Chat)
		}
		t.rest(s, next, now)
		if !t.act(ctx, next) {
			if s.Filled || s.Settling || s.Doubt || behind || s.End == live.Abort {
				return pipePoll
			}
			return t.run.intervals.lookEvery
		}
	}
	return 0
}

// state returns what the decision rests on. It changes nothing. behind: the session was read further than stdout.
func (t *talker) state(now time.Duration) (s live.State, behind bool, err error) {
	s = live.State{
		Ready: t.spec.Ready(t.talk) && now >= t.hold, Busy: t.talk.Busy, Closed: t.closed != 0,
		Settling: t.turnOver != 0, Replies: len(t.replies), Tried: t.tried,
		Doubt: t.doubt.is, Asked: t.doubt.asked, Answered: t.doubt.answers, Rounds: t.spec.Rounds,
	}
	if s.Closed {
		return s, false, nil
	}
	if s.Filled, err = t.input.Filled(); err != nil {
		return s, false, err
	}
	s.Open = !t.openSent && t.spec.Open != nil && !t.talk.Opened
	chats, read, orders := t.shared.view()
	t.journal.view(func(l *live.Ledger) {
		behind = t.addSent(&s, l)
		s.Chats = t.toPut(l, chats)
	})
	switch {
	case orders.aborting != 0:
		s.End = live.Abort
		s.Busy = s.Busy && now-orders.aborting < t.run.intervals.grace/4 // else it does not obey
	case orders.finish != "" || t.idle(s, now, read):
		s.End, s.Tail = live.Finish, orders.tail
	}
	return s, behind, nil
}

// addSent adds to the state what was written to the agent, and reports whether the session was read further than
// stdout.
func (t *talker) addSent(s *live.State, l *live.Ledger) (behind bool) {
	open := l.Open()
	// The mirror may have read a message's line since: stdout as it was read may lack the beginning of its turn.
	s.Queued = max(0, t.open-len(open))
	behind = s.Queued > 0
	for _, sent := range open {
		switch {
		case sent.Torn:
			s.Torn = true
		case sent.Accepted:
			s.Queued++
			s.Apart = s.Apart || t.apart(sent.Text)
		default:
			s.Written = true
		}
	}
	s.Interrupted = t.skipped
	if id := l.Interrupt[0]; id != "" && !t.answered[id] {
		s.Interrupting = true
	} else if id != "" {
		s.Interrupted = l.Interrupt[1]
	}
	return behind
}

// toPut returns those of the thread's chats that the agent does not have.
func (t *talker) toPut(l *live.Ledger, pending []thread.PendingChat) (chats []live.Chat) {
	for _, chat := range pending {
		if l.Holds(chat.ID) {
			continue
		}
		text := chat.Text
		if t.isPrompt(chat.ID) {
			text = t.run.Prompt
		}
		apart := t.apart(text) || chat.Omitted && t.spec.Apart != nil
		chats = append(chats, live.Chat{ID: chat.ID, Deliver: chat.Deliver, Apart: apart})
	}
	return chats
}

// apart reports whether the agent takes in a message with this text apart from others.
func (t *talker) apart(text string) bool { return t.spec.Apart != nil && t.spec.Apart(text) }

// missing reports whether an idle agent has no record of a message that it has accepted.
func (t *talker) missing(s live.State, now time.Duration) bool {
	return !s.Doubt && s.Queued > 0 && !t.talk.Busy && !s.Settling && !s.Written && now-t.changed > lostAfter
}

// works reports whether the agent has, or is to get, anything to do.
func works(s live.State) bool {
	return s.Busy || s.Settling || s.Written || s.Queued > 0 || len(s.Chats) > 0 || s.Doubt
}

// idle reports whether the agent has waited for a chat for too long. read: the thread was read; before that there may
// be chats on it.
func (t *talker) idle(s live.State, now time.Duration, read bool) bool {
	limit := t.run.Idle
	if !read {
		limit = max(limit, firstRead)
	}
	return !works(s) && now-t.rested >= limit
}

// rest notes whether the agent waits.
func (t *talker) rest(s live.State, next live.Action, now time.Duration) {
	if works(s) {
		t.rested = now
	}
	quiet := next.Do == live.Wait && !works(s) && !s.Open && !s.Closed && s.End == live.Stay
	t.shared.quiet.Store(quiet)
	t.shared.waiting.Store(quiet && t.shared.offset() != "")
}
