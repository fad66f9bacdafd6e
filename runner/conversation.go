package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/live"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// conversation gives a live run's agent the thread's chats. The thread is the queue, the session is the receipt, and
// the journal is the memory between the two: a record is on disk before the line that it is about is written.
//
// A loop reads what the agent has recorded and printed, and does what live.Next decides, until it decides to wait. All
// methods that a print run calls take a nil conversation.
type conversation struct {
	*run
	spec    *harness.Live
	journal *journal
	wake    chan struct{} // the loop looks again
	posts   chan struct{} // there is an entry to post
	shut    chan struct{} // closed when the agent's input has ended
	failed  atomic.Bool   // the agent is being ended because of its input
	busy    atomic.Bool   // a turn is running
	quiet   atomic.Bool   // the agent has ended its turn and has no message to take
	waiting atomic.Bool   // the same, and the thread was read
	stdout  atomic.Int64  // the agent's stdout before it is not needed any more

	mu       sync.Mutex
	pending  thread.Pending  // the chats that no session has on record, as far as the thread was read
	known    map[string]bool // ids of all chats that were read
	from     string          // offset of the thread behind its first reading; "": it was not read
	finish   string          // why the run ends once all is done; "": it does not
	tail     bool            // no chat came since the thread was read to its tail
	aborting time.Duration   // since when the run ends at once: clock; 0: it does not
	ended    outcome.Action  // why the input was closed
	endedWhy string

	// The loop's own.
	in       *input
	talk     harness.Talk
	openSent bool // the lines that open the session are written
	answered map[string]bool
	replies  []harness.Request
	open     int           // messages that no line of the session had when stdout was last read
	behind   bool          // the session was read further than stdout
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

// newConversation reads what earlier workers of the run have recorded.
func (r *run) newConversation() (*conversation, error) {
	j, err := openJournal(r.folder.Path, r.Prompt, r.Spec.Live)
	if err != nil {
		return nil, err
	}
	now := runfolder.Clock()
	return &conversation{
		run: r, spec: r.Spec.Live, journal: j, wake: make(chan struct{}, 1), posts: make(chan struct{}, 1),
		shut: make(chan struct{}), known: map[string]bool{}, answered: map[string]bool{}, rested: now, changed: now,
	}, nil
}

func (c *conversation) close() error {
	if c == nil {
		return nil
	}
	return errors.Join(c.journal.close(), c.in.close())
}

// delivered is the Delivered of the Mirror of the run's session k.
func (c *conversation) delivered(k int) func(session.Line, session.Entry) []string {
	if c == nil {
		return nil
	}
	return func(l session.Line, e session.Entry) []string {
		chats := c.journal.judge(number(k, l.Start.Index), l.Data, e)
		if len(chats) > 0 {
			notify(c.wake)
		}
		return chats
	}
}

// notify wakes the reader of a channel, which has room for one message.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// reached is for tests: a worker may die here.
func (c *conversation) reached(place, chat string) {
	if c.intervals.reached != nil {
		c.intervals.reached(place, chat)
	}
}

// waits reports whether the agent waits for a chat.
func (c *conversation) waits() bool { return c != nil && c.waiting.Load() }

// rests reports whether the agent has nothing to do: no turn, and no message to take.
func (c *conversation) rests() bool { return c != nil && c.quiet.Load() }

// between reports whether no turn of a live run is running.
func (c *conversation) between() bool { return c != nil && !c.busy.Load() }

// endedBy returns why the agent's input was closed.
func (c *conversation) endedBy() (outcome.Action, string) {
	if c == nil {
		return outcome.ActionNone, ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended, c.endedWhy
}

// addFacts adds what the journal has for the verdict. end is the number behind the run's last line.
func (c *conversation) addFacts(facts *outcome.Facts, end int) {
	if c == nil {
		return
	}
	c.journal.view(func(l *live.Ledger) {
		facts.Interrupted = l.Interrupted || l.CutOff && end <= l.TurnLine
		facts.Unasked = len(l.Lines) == 0
		if facts.Unasked && !l.Handled {
			facts.Refused = l.Why
		}
	})
}

// newAgent prepares the input for a new process that becomes the agent.
func (c *conversation) newAgent() (stdin *os.File, err error) {
	if c.in == nil {
		if c.in, err = openInput(c.folder.Path); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(c.in.empty(), c.journal.sync(live.Record{Op: live.OpAgent})); err != nil {
		return nil, err
	}
	return c.in.stdin()
}

// takeOver prepares the conversation with the agent of an earlier worker.
func (c *conversation) takeOver() {
	if c.progress.Closed {
		c.closed = runfolder.Clock()
		close(c.shut)
		c.tellKeeper()
		return
	}
	var err error
	if c.in, err = openInput(c.folder.Path); err != nil {
		c.fail("open its input: " + err.Error())
		return
	}
	lost := false
	c.journal.view(func(l *live.Ledger) {
		lost = l.Agents == 0
		c.doubt.is = l.Interrupt[0] != ""
		for _, s := range l.Open() {
			c.doubt.is = c.doubt.is || !s.Accepted
		}
	})
	c.doubt.takeover = c.doubt.is
	if lost {
		c.fail("the journal of its input is gone")
	}
}

// startLive starts the conversation with the running agent; the returned func ends it.
func (r *run) startLive(ctx context.Context, outputs []*output) (stop func()) {
	c := r.live
	if c == nil {
		return func() {}
	}
	if len(outputs) > 0 {
		h, _ := c.follower.talkState()
		c.stdout.Store(h.At)
		c.saved, outputs[0].keep = h.At, &c.stdout
	}
	if r.adopted {
		c.takeOver()
	}
	stopPosts := start(ctx, c.postOn)
	stopWatch := start(ctx, c.watchStdout)
	stopLoop := start(ctx, c.loop)
	return func() {
		stopLoop()
		stopWatch()
		stopPosts()
		c.quiet.Store(false)
		c.waiting.Store(false)
		if err := c.follower.read(true); err != nil {
			c.Log.Debug("read the agent's stdout", "error", err)
		}
		if n := c.left(); n > 0 {
			c.Log.Warn("chats wait for the next run", "chats", n)
		}
	}
}

// left returns how many chats are not delivered.
func (c *conversation) left() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.view(func(l *live.Ledger) {
		for _, chat := range c.pending.Chats() {
			if !l.Done[chat.ID] {
				n++
			}
		}
	})
	return n
}

// watchStdout wakes the loop when the agent prints.
func (c *conversation) watchStdout(ctx context.Context) error {
	w := session.NewWatch(filepath.Join(c.folder.Path, "stdout"))
	for ctx.Err() == nil {
		w.Wait(ctx, time.Minute) // the loop looks each second
		notify(c.wake)
	}
	return w.Close()
}

// loop converses until ctx is done.
func (c *conversation) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		again := c.pass(ctx)
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// pass reads and acts until there is something to wait for, and returns how long at most.
func (c *conversation) pass(ctx context.Context) (wait time.Duration) {
	for ctx.Err() == nil {
		c.read()
		c.save()
		if c.failed.Load() {
			return c.intervals.lookEvery
		}
		s, err := c.state()
		if err != nil {
			c.fail(err.Error())
			return c.intervals.lookEvery
		}
		next := live.Next(s)
		if next.Do != live.Wait && next.Do != live.Read {
			c.Log.Debug("conversation", "do", string(next.Do), "chat", next.Chat)
		}
		c.rest(s, next)
		if !c.act(ctx, next) {
			if s.Filled || s.Settling || s.Doubt || c.behind || s.End == live.Abort {
				return pipePoll
			}
			return c.intervals.lookEvery
		}
	}
	return 0
}

// state returns what the decision rests on.
func (c *conversation) state() (s live.State, err error) {
	now := runfolder.Clock()
	s = live.State{
		Ready: c.spec.Ready(c.talk) &&
			now >= c.hold, Busy: c.talk.Busy, Closed: c.closed != 0, Settling: c.turnOver != 0,
		Replies: len(
			c.replies,
		), Rounds: c.spec.Rounds, Asked: c.doubt.asked, Answered: c.doubt.answers, Tried: c.tried,
	}
	if s.Closed {
		return s, nil
	}
	if s.Filled, err = c.in.filled(); err != nil {
		return s, err
	}
	s.Open = !c.openSent && c.spec.Open != nil && !c.talk.Opened
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.view(func(l *live.Ledger) {
		open := l.Open()
		// The mirror may have read a message's line since: stdout as it was read may lack the beginning of its turn.
		s.Queued = max(0, c.open-len(open))
		c.behind = s.Queued > 0
		for _, sent := range open {
			switch {
			case sent.Torn:
				s.Torn = true
			case sent.Accepted:
				s.Queued++
				s.Apart = s.Apart || c.apart(sent.Text)
			default:
				s.Written = true
			}
		}
		var done []string
		for _, chat := range c.pending.Chats() {
			if l.Done[chat.ID] {
				done = append(done, chat.ID)
			} else if !l.Holds(chat.ID) {
				text := chat.Text
				if chat.ID == promptID(c.RunID) && c.Prompt != "" {
					text = c.Prompt
				}
				apart := c.apart(text) || chat.Omitted && c.spec.Apart != nil
				s.Chats = append(s.Chats, live.Chat{ID: chat.ID, Deliver: chat.Deliver, Apart: apart})
			}
		}
		for _, id := range done {
			c.pending.Drop(id)
		}
		s.Interrupted = c.skipped
		if id := l.Interrupt[0]; id != "" && !c.answered[id] {
			s.Interrupting = true
		} else if id != "" {
			s.Interrupted = l.Interrupt[1]
		}
	})
	if !c.doubt.is && s.Queued > 0 && !s.Busy && !s.Settling && !s.Written && now-c.changed > lostAfter {
		c.doubt = doubt{is: true, tries: c.doubt.tries}
		s.Asked, s.Answered = 0, 0
	}
	s.Doubt = c.doubt.is
	switch {
	case c.aborting != 0:
		s.End = live.Abort
		s.Busy = s.Busy && now-c.aborting < c.intervals.grace/4 // else it does not obey
	case c.finish != "" || c.idle(s, now):
		s.End, s.Tail = live.Finish, c.tail
	}
	return s, nil
}

// apart reports whether the agent takes in a message with this text apart from others.
func (c *conversation) apart(text string) bool { return c.spec.Apart != nil && c.spec.Apart(text) }

// idle reports whether the agent has waited for a chat for too long. Before the thread was read once there may be chats
// on it.
func (c *conversation) idle(s live.State, now time.Duration) bool {
	if s.Busy || s.Settling || s.Written || s.Queued > 0 || len(s.Chats) > 0 || s.Doubt {
		c.rested = now
	}
	limit := c.Idle
	if c.from == "" {
		limit = max(limit, firstRead)
	}
	return now-c.rested >= limit
}

// rest notes whether the agent waits.
func (c *conversation) rest(s live.State, next live.Action) {
	quiet := next.Do == live.Wait && !s.Busy && !s.Settling && !s.Written && s.Queued == 0 && len(s.Chats) == 0 &&
		!s.Doubt && !s.Open && !s.Closed && s.End == live.Stay
	c.quiet.Store(quiet)
	c.waiting.Store(quiet && c.offsetRead() != "")
}

// abort ends the turn and the input of an agent that must end now, and returns how long it took.
func (c *conversation) abort(p *harness.Process) time.Duration {
	if c == nil {
		return 0
	}
	began := runfolder.Clock()
	c.mu.Lock()
	done := c.ended != outcome.ActionNone || c.failed.Load()
	c.aborting = began
	c.mu.Unlock()
	if done { // its input has ended long ago, or can't be continued
		return 0
	}
	notify(c.wake)
	timer := time.NewTimer(c.intervals.grace / 2)
	defer timer.Stop()
	select {
	case <-p.Done():
	case <-timer.C:
	}
	return runfolder.Clock() - began
}

// resumeEnd ends the agent for the reason of an earlier worker. The agent of a live run that was to end by the end of
// its input gets that again.
func (r *run) resumeEnd(facts outcome.Facts) {
	if r.live == nil || facts.Action != outcome.ActionEnd {
		r.end(cause{facts.Action, facts.Why})
		return
	}
	r.live.mu.Lock()
	defer r.live.mu.Unlock()
	r.live.finish, r.live.tail = facts.Why, true
	r.live.ended, r.live.endedWhy = facts.Action, facts.Why
}

// fail ends the agent because its input can't be continued.
func (c *conversation) fail(why string) {
	if !c.failed.Swap(true) {
		c.end(cause{outcome.ActionInput, why})
	}
}
