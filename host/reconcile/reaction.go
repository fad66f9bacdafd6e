package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/thread"
)

// leastSilent is how long a reaction is silent at least before it is ended, however short OrphanAfter is. While any
// host dispatches, one takes it over much sooner.
const leastSilent = 2 * time.Minute

// judgeReaction returns why a bot's reaction that has been silent for so long is dead; "" if it may be alive.
func judgeReaction(silence, orphanAfter time.Duration) string {
	if silence < max(orphanAfter, leastSilent) {
		return ""
	}
	return fmt.Sprintf("no host has worked on it for %v", silence.Round(time.Second))
}

// settleReactions posts an end for the reactions of bots on which nobody works: no host dispatches any more.
func (t *settling) settleReactions(ctx context.Context) (err error) {
	orphanAfter := cmp.Or(t.r.OrphanAfter, DefaultOrphanAfter)
	for _, x := range t.reactions.Open() {
		if judgeReaction(t.state().Silence(x.Last), orphanAfter) == "" {
			t.pending = true
			continue
		}
		open, own := t.settleReaction(ctx, x, orphanAfter)
		t.pending, err = t.pending || open, errors.Join(err, own)
	}
	return err
}

// settleReaction reads what a reaction has since its first claim: the fold has no rounds, and may lack signs of life.
// It reports whether the reaction is open still.
func (t *settling) settleReaction(
	ctx context.Context, x thread.OpenReaction, orphanAfter time.Duration,
) (open bool, err error) {
	if err := t.reading.acquire(ctx); err != nil {
		return true, err
	}
	state := dispatch.NewState(t.id, time.Time{})
	entries := t.client.Only(prefixReaction, thread.TypeRound, thread.TypeResult)
	page, err := entries.Read(ctx, cmp.Or(x.Upto, "0"), false, func(e thread.Entry) error { state.Add(e); return nil })
	t.reading.release()
	if err != nil {
		return true, fmt.Errorf("read thread %s: %w", t.id, err)
	}
	if !page.Now.IsZero() {
		t.now = page.Now
	}
	j := state.Reaction(x.ID)
	if j == nil {
		return false, nil
	}
	why := judgeReaction(t.state().Silence(j.Last()), orphanAfter)
	if why == "" {
		return true, nil
	}
	end := j.End(thread.ReactionFailed, "silent", why, t.now)
	end.TS = thread.Stamp(t.now)
	fresh, err := t.post(ctx, t.client, end)
	if errors.Is(err, errTaken) { // a host has ended it meanwhile
		return false, nil
	}
	if err == nil && fresh {
		t.record(x.ID, Ended, why)
	}
	return err != nil, err
}

// prefixReaction begins the types of reactions' claims, signs of life and ends.
const prefixReaction = "signal.dispatch.reaction_"
