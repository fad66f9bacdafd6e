package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Limits of a reaction, where the house has none of its own.
var usual = Caps{Rounds: 25, Calls: 50, Wall: 15 * time.Minute}

// Limits of a round.
const (
	contextTokens = 60_000
	outputTokens  = 8_000
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

	mu     sync.Mutex
	posted time.Time // when this holder last gave a sign of life
	alive  int
	deltas int
}

// start claims a new reaction, and begins it.
func (w *worker) start(ctx context.Context, room Room, st Start, reacting *sync.WaitGroup) error {
	bot, _ := room.bot(st.Bot)
	st.Provider, st.Model = bot.Provider, bot.Model
	w.board.see(func(*State) { st.Upto = w.board.next })
	return w.hold(ctx, thread.ReactionClaimed{Reaction: st.ID, AgentID: st.Bot, Begun: &st.Begun}, reacting)
}

// take claims a reaction whose holder is silent, and continues it; one that ends its hosts is ended.
func (w *worker) take(ctx context.Context, j Journal, reacting *sync.WaitGroup) error {
	if j.Crashed() {
		end := w.board.endOf(j, thread.ReactionFailed, "crashed", "its hosts died again and again")
		_, err := w.board.append(ctx, end)
		return err
	}
	return w.hold(ctx, thread.ReactionClaimed{Reaction: j.ID, Claim: j.Claim + 1, AgentID: j.Bot}, reacting)
}

// hold claims a reaction once this host has room for it, and lets it run.
func (w *worker) hold(ctx context.Context, c thread.ReactionClaimed, reacting *sync.WaitGroup) error {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.Type, c.Instance, c.LeaseMs = thread.TypeReactionClaimed, w.Instance, lease.Milliseconds()
	ok, err := w.board.append(ctx, entry(thread.ReactionClaimID(c.Reaction, c.Claim), c.AgentID, c))
	if err != nil || !ok { // another host has it
		<-w.slots
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
	if err != nil && !errors.Is(err, errLost) {
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

// live posts signs of life, until quit is closed. Where the reaction has ended, or another host has it, it ends what
// this one does: a request to the model that nobody waits for costs money.
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
			case errors.Is(err, errLost):
				r.stop()
				return
			case err != nil:
				r.Log.Debug("a sign of life is not posted", "reaction", r.id, "error", err)
				r.mu.Lock()
				r.posted = time.Now() // the next try is in a while
				r.mu.Unlock()
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
		stop, err := r.stopped(ctx, j)
		if err != nil {
			return err
		}
		if stop {
			continue
		}
		switch step := Next(&j, usual, r.board.time()); step.Do {
		case DoFinish:
			err = r.post(ctx, r.board.endOf(j, step.Outcome, "", ""))
		case DoGate:
			gated, err = r.gate(asking, j, all)
		case DoCalls:
			err = r.calls(asking, j, step)
		case DoModel:
			err = r.round(asking, j, all, step)
		}
		if cancelled := asking.Err() != nil && ctx.Err() == nil; err != nil && !cancelled {
			return err
		}
	}
}

// stopped ends the reaction where the thread or the bot has gone since.
func (r *reaction) stopped(ctx context.Context, j Journal) (bool, error) {
	room, _, ok, err := r.Room(ctx, r.worker.id)
	if err != nil {
		return false, err
	}
	why := ""
	_, member := room.bot(j.Bot)
	switch {
	case !ok:
		return false, errLost
	case room.Closed:
		why = "the thread was closed"
	case !member:
		why = "the bot is no member any more"
	default:
		return false, nil
	}
	return true, r.post(ctx, r.board.endOf(j, thread.ReactionCancelled, "", why))
}

// endOf returns the end of a reaction.
func (b *board) endOf(j Journal, outcome, class, message string) thread.Entry {
	calls := 0
	for _, r := range j.Rounds {
		calls += len(r.Calls)
	}
	return entry(thread.ReactionEndID(j.ID), j.Bot, thread.ReactionFinished{
		Type: thread.TypeReactionFinished, Reaction: j.ID, Chats: j.Chats, Outcome: outcome, ErrorClass: class,
		Message: message, Rounds: len(j.Rounds), Calls: calls, DurationMs: b.time().Sub(j.At).Milliseconds(),
	})
}
