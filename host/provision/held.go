package provision

import (
	"context"
	"time"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// holdTimeout bounds the post that a task waits, which the next look repeats.
const holdTimeout = 5 * time.Second

// Hold posts on a task's thread that it waits for its house. Another host may have posted it with another limit, and
// the thread may be deleted: neither is an error.
func (h *Host) Hold(ctx context.Context, t rows.HeldTask) error {
	cl, err := h.Client(t.Thread)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	_, err = cl.Append(ctx, []thread.Entry{thread.Waits(t.Thread, t.Reason())})
	if client.Taken(err) || client.Gone(err) {
		return nil
	}
	return err
}

// watchHeld reports the tasks that wait for their house until ctx is done.
func (p Provisioner) watchHeld(ctx context.Context) {
	tick := time.NewTicker(p.Every)
	defer tick.Stop()
	for said := map[string]bool{}; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.hold(ctx, said)
		}
	}
}

// hold reports the tasks that wait for their house and are not among those that were reported. It ends with the first
// one that fails: the next call continues.
func (p Provisioner) hold(ctx context.Context, said map[string]bool) {
	if p.Held == nil {
		return
	}
	held, err := p.Held(ctx)
	if err != nil {
		return // Take logs it
	}
	waits := map[string]bool{}
	for _, t := range held {
		waits[t.Thread] = true
	}
	for id := range said {
		if !waits[id] {
			delete(said, id)
		}
	}
	for _, t := range held {
		if said[t.Thread] {
			continue
		}
		if err := p.Hold(ctx, t); err != nil {
			if ctx.Err() == nil {
				p.Log.Warn("task waits for its house: not posted yet", "thread", t.Thread, "error", err)
			}
			return
		}
		said[t.Thread] = true
		p.Log.Info("task waits for its house", "thread", t.Thread, "reason", t.Reason())
	}
}
