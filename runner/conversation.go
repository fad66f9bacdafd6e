package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/live"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/runner/stdio"
	"arbe.0sk.ar/runner/session"
)

// conversation gives a live run's agent the thread's chats. The thread is the queue, the session is the receipt, and
// the journal is the memory between the two: a record is on disk before the line that it is about is written.
//
// The run makes it and sets its fields before a goroutine of it starts. listen follows the thread, postOn posts
// entries, and a talker writes to the agent; they meet in shared. All methods that a print run calls take a nil
// conversation.
type conversation struct {
	run     *run
	spec    *harness.Live
	journal *journal
	input   *stdio.Input  // nil: it has no agent
	wake    chan struct{} // the talker looks again
	posts   chan struct{} // there is an entry to post
	shared  shared
}

// newConversation reads what earlier workers of the run have recorded.
func (r *run) newConversation() (*conversation, error) {
	j, err := openJournal(r.Folder.Path, r.Prompt, r.Spec.Live)
	if err != nil {
		return nil, err
	}
	return &conversation{
		run: r, spec: r.Spec.Live, journal: j, wake: make(chan struct{}, 1), posts: make(chan struct{}, 1),
		shared: shared{known: map[string]bool{}},
	}, nil
}

func (c *conversation) close() error {
	if c == nil {
		return nil
	}
	return errors.Join(c.journal.close(), c.input.Close())
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

// waits reports whether the agent waits for a chat.
func (c *conversation) waits() bool { return c != nil && c.shared.waiting.Load() }

// rests reports whether the agent has nothing to do: no turn, and no message to take.
func (c *conversation) rests() bool { return c != nil && c.shared.quiet.Load() }

// between reports whether no turn of a live run is running.
func (c *conversation) between() bool { return c != nil && !c.shared.busy.Load() }

// endedBy returns why the agent's input was closed.
func (c *conversation) endedBy() (outcome.Action, string) {
	if c == nil {
		return outcome.ActionNone, ""
	}
	return c.shared.endedBy()
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
	if c.input == nil {
		if c.input, err = stdio.OpenInput(c.run.Folder.Path); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(c.input.Empty(), c.journal.sync(live.Record{Op: live.OpAgent})); err != nil {
		return nil, err
	}
	return c.input.Stdin()
}

// startLive starts the conversation with the running agent; the returned func ends it.
func (r *run) startLive(ctx context.Context, outputs []*stdio.Output) (stop func()) {
	c := r.live
	if c == nil {
		return func() {}
	}
	t := newTalker(c)
	if len(outputs) > 0 {
		h, _ := r.follower.talkState()
		c.shared.stdout.Store(h.At)
		t.saved, outputs[0].Keep = h.At, &c.shared.stdout
	}
	if r.adopted {
		t.takeOver()
	}
	stopPosts := start(ctx, c.postOn)
	stopWatch := start(ctx, c.watchStdout)
	stopLoop := start(ctx, t.loop)
	return func() {
		stopLoop()
		stopWatch()
		stopPosts()
		c.shared.quiet.Store(false)
		c.shared.waiting.Store(false)
		if err := r.follower.read(true); err != nil {
			r.Log.Debug("read the agent's stdout", "error", err)
		}
		if n := c.forgetDone(); n > 0 {
			r.Log.Warn("chats wait for the next run", "chats", n)
		}
	}
}

// forgetDone frees the chats that are taken in or refused, and returns how many are left.
func (c *conversation) forgetDone() (left int) {
	chats, _, _ := c.shared.view()
	var done []string
	c.journal.view(func(l *live.Ledger) {
		for _, chat := range chats {
			if l.Done[chat.ID] {
				done = append(done, chat.ID)
			}
		}
	})
	c.shared.drop(done...)
	return len(chats) - len(done)
}

// watchStdout wakes the loop when the agent prints.
func (c *conversation) watchStdout(ctx context.Context) error {
	w := session.NewWatch(filepath.Join(c.run.Folder.Path, "stdout"))
	for ctx.Err() == nil {
		w.Wait(ctx, time.Minute) // the loop looks each second
		notify(c.wake)
	}
	return w.Close()
}

// abort ends the turn and the input of an agent that must end now, and returns how long it took.
func (c *conversation) abort(p *harness.Process) time.Duration {
	if c == nil || !c.shared.abort() {
		return 0
	}
	began := runfolder.Clock()
	notify(c.wake)
	timer := time.NewTimer(c.run.intervals.grace / 2)
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
	r.live.shared.finishAgain(facts.Action, facts.Why)
}

// note records what need not outlive the machine. A record that can't be written costs a repeat at most.
func (c *conversation) note(what string, records ...live.Record) {
	if err := c.journal.note(records...); err != nil {
		c.run.Log.Warn("record "+what, "error", err)
	}
}

// fail ends the agent because its input can't be continued.
func (c *conversation) fail(why string) {
	if !c.shared.failed.Swap(true) {
		c.run.end(cause{outcome.ActionInput, why})
	}
}

// isPrompt reports whether a chat is the prompt of the command line.
func (c *conversation) isPrompt(id string) bool {
	return c.run.Prompt != "" && id == promptID(c.run.RunID)
}
