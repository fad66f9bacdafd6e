package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Limits of a round.
const (
	contextTokens = 60_000
	patience      = 10 * time.Minute // with a provider that is away, in one round
	mostRetry     = time.Minute
	garbled       = 2 // more tries after a reply that makes no sense
)

// reaction is a reaction that this host holds.
type reaction struct {
	*worker
	board *board // the worker may begin a new one
	id    string
	claim int
	stop  context.CancelFunc // ends what it does now: it was cancelled

	// Of the requests to models, by the goroutine of the steps.
	asked   bool  // for an answer
	used    Used  // since the last round
	context int64 // tokens of the last one that had a reply, without those of the reply

	failing time.Time // since when no call can be run; zero where the last step was done

	mu     sync.Mutex
	posted time.Time // when this holder last gave a sign of life
	alive  int
	deltas int
}

// start claims a new reaction, and begins it.
func (w *worker) start(ctx context.Context, room Room, st Start, reacting *sync.WaitGroup) error {
	bot, _ := room.bot(st.Bot)
	st.Provider, st.Model, st.Tools = bot.Provider, bot.Model, w.toolsOf(bot)
	st.Begun.Caps = thread.Marshal(bot.Caps.Or(usual))
	w.board.see(func(*State) { st.Upto = w.board.next })
	return w.hold(ctx, thread.ReactionClaimed{Reaction: st.ID, AgentID: st.Bot, Begun: &st.Begun}, reacting)
}

// take claims a reaction whose holder is silent, and continues it; one that ends its hosts is ended.
func (w *worker) take(ctx context.Context, j Journal, reacting *sync.WaitGroup) error {
	if j.Crashed() {
		if err := w.stopCalls(ctx, w.id, j); err != nil {
			return err
		}
		end := w.board.endOf(j, thread.ReactionFailed, "crashed", "its hosts died again and again")
		_, err := w.board.append(ctx, end)
		return err
	}
	return w.hold(ctx, thread.ReactionClaimed{Reaction: j.ID, Claim: j.Claim + 1, AgentID: j.Bot}, reacting)
}

// hold claims a reaction if this host has a slot for it, and lets it run.
func (w *worker) hold(ctx context.Context, c thread.ReactionClaimed, reacting *sync.WaitGroup) error {
	if !w.slot {
		select {
		case w.slots <- struct{}{}:
		default:
			w.starved = true
			return nil
		}
	}
	w.slot = false
	c.Type, c.Instance, c.LeaseMs = thread.TypeReactionClaimed, w.Instance, lease.Milliseconds()
	ok, err := w.board.append(ctx, entry(thread.ReactionClaimID(c.Reaction, c.Claim), c.AgentID, c))
	if err != nil || !ok {
		<-w.slots
		w.wake() // another host has it, and may fall silent
		return err
	}
	r := &reaction{worker: w, board: w.board, id: c.Reaction, claim: c.Claim, posted: time.Now()}
	asking, stop := context.WithCancel(ctx)
	r.stop = stop
	w.held[r.id] = r
	reacting.Go(func() {
		r.run(ctx, asking)
		stop()
		<-w.slots // before the worker, which may wait for one, has to take the end
		select {
		case w.ended <- r:
		case <-ctx.Done():
		}
	})
	return nil
}

// farewell is how long a host that stops tries to release a reaction.
const farewell = 5 * time.Second

// run does the steps of the reaction until it has ended, or another host has it.
// asking ends with ctx, and when the reaction is cancelled.
func (r *reaction) run(ctx, asking context.Context) {
	var living sync.WaitGroup
	quit := make(chan struct{})
	living.Go(func() { r.live(ctx, quit) })
	err := r.steps(ctx, asking)
	close(quit)
	living.Wait()
	if errors.Is(err, ErrRefused) { // as it would be from the next host
		if j, _, ok := r.board.journal(r.id); ok {
			err = r.post(ctx, r.end(j, thread.ReactionFailed, "refused", err.Error()))
		}
	}
	if err != nil && !errors.Is(err, errLost) && !errors.Is(err, ErrGone) {
		r.Log.Warn("a reaction is released", "thread", r.worker.id, "reaction", r.id, "error", err)
		life, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		_ = r.sign(life, true) // it is silent then, and taken over after its lease
	}
}

// errLost ends the steps of a reaction that has ended, or that another host holds.
var errLost = errors.New("the reaction is another host's")

// post appends entries of the reaction. Where they are refused, the next look at the journal has the reason.
func (r *reaction) post(ctx context.Context, entries ...thread.Entry) error {
	ok, err := r.board.append(ctx, entries...)
	if ok {
		r.mu.Lock()
		r.posted = time.Now()
		r.mu.Unlock()
	}
	return err
}

// live posts signs of life, until quit is closed. Where the reaction or its thread has ended, or another host has it,
// it ends what this one does: a request to the model that nobody waits for costs money.
func (r *reaction) live(ctx context.Context, quit <-chan struct{}) {
	for {
		r.mu.Lock()
		next := time.Until(r.posted.Add(aliveEvery))
		r.mu.Unlock()
		select {
		case <-quit:
			return
		case <-ctx.Done():
			return
		case <-time.After(max(next, time.Millisecond)):
		}
		r.mu.Lock()
		silent := time.Since(r.posted) >= aliveEvery
		r.mu.Unlock()
		if silent {
			switch err := r.sign(ctx, false); {
			case errors.Is(err, errLost), errors.Is(err, ErrGone):
				r.stop()
				return
			case err != nil:
				r.Log.Debug("a sign of life is not posted", "reaction", r.id, "error", err)
				r.mu.Lock()
				r.posted = time.Now() // the next try is in a while
				r.mu.Unlock()
			default: // the worker sees this earlier, unless the rows are away
				if j, _, ok := r.board.journal(r.id); ok && j.cancelled {
					r.stop()
				}
			}
		}
	}
}

// sign posts a sign of life, or that the reaction is released. It returns errLost for one that this host has no more.
func (r *reaction) sign(ctx context.Context, released bool) error {
	j, _, ok := r.board.journal(r.id)
	if !ok || j.Claim != r.claim {
		return errLost
	}
	r.mu.Lock()
	n := r.alive
	r.alive++
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, aliveEvery)
	defer cancel()
	return r.post(ctx, entry(thread.ReactionAliveID(r.id, r.claim, n), j.Bot, thread.ReactionAlive{
		Type: thread.TypeReactionAlive, Reaction: r.id, Claim: r.claim, Released: released,
	}))
}

// steps does the steps of the reaction. It returns errLost once it has ended.
func (r *reaction) steps(ctx, asking context.Context) error {
	gated := false
	for {
		if err := r.board.sync(ctx); err != nil {
			return err
		}
		j, all, ok := r.board.journal(r.id)
		if !ok || j.Claim != r.claim || j.Instance != r.Instance {
			return errLost
		}
		j.Gated = gated
		step := Next(&j, j.caps(), r.board.time())
		if step.Do == DoFinish {
			if err := r.finish(ctx, j, step.Outcome, ""); err != nil {
				return err // whether the reaction was cancelled or not
			}
			continue
		}
		var err error
		gated, err = r.step(asking, j, all, step)
		failed, call := errors.AsType[*callError](err)
		switch {
		case err == nil:
			r.failing = time.Time{}
			continue
		case ctx.Err() != nil:
			return err
		case asking.Err() != nil: // cancelled
			continue
		case call:
			err = r.later(asking, j, step.Round, failed)
		}
		if err != nil && asking.Err() == nil {
			return err
		}
	}
}

// step does a step that costs time, unless the thread or the bot has gone: then it ends the reaction. gated reports
// whether the reaction has passed its gate.
func (r *reaction) step(ctx context.Context, j Journal, all notes, step Step) (gated bool, err error) {
	room, _, ok, err := r.Room(ctx, r.worker.id)
	switch why := room.without(j.Bot); {
	case err != nil && step.Do == DoCalls:
		return j.Gated, &callError{step.Calls[0], err}
	case err != nil:
		return j.Gated, err
	case !ok:
		return j.Gated, errLost
	case why != "":
		return j.Gated, r.finish(ctx, j, thread.ReactionCancelled, why)
	}
	switch step.Do {
	case DoGate:
		return r.gate(ctx, j, all, room)
	case DoCalls:
		return j.Gated, r.calls(ctx, j, room, step)
	case DoModel:
		return j.Gated, r.round(ctx, j, all, room, step)
	case DoFinish:
	}
	return j.Gated, nil
}

// without returns why a bot can't answer on the thread any more; "" where it can.
func (r Room) without(bot string) string {
	if r.Closed {
		return "the thread was closed"
	}
	if _, member := r.bot(bot); !member {
		return "the bot is no member any more"
	}
	return ""
}

// finish ends the reaction before its reply, and what its calls have begun.
func (r *reaction) finish(ctx context.Context, j Journal, outcome, why string) error {
	if err := r.stopCalls(ctx, r.worker.id, j); err != nil {
		return err
	}
	return r.post(ctx, r.end(j, outcome, "", why))
}

// endOf returns the end of a reaction.
func (b *board) endOf(j Journal, outcome, class, message string) thread.Entry {
	return j.End(outcome, class, message, b.time())
}
