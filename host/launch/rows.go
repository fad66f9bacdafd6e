package launch

import (
	"context"
	"fmt"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
)

// unclaimed returns a *BusyError where a run that the log does not have has claimed the thread's row. A claim that is
// older than rows.ClaimTimeout was left by a host that died.
func (g *launching) unclaimed(ctx context.Context) error {
	if g.Rows == nil {
		return nil
	}
	run, since, err := g.Rows.Rows.Claimed(ctx, g.Thread)
	if err != nil {
		return err
	}
	if run != "" && run != g.Run && g.thread.status(run) == "" && since < rows.ClaimTimeout {
		return &BusyError{g.Thread, run}
	}
	return nil
}

// rowBox returns the box that the thread's row names. The run has claimed the row then, and holds the box. fresh is set
// if the box was made for the run.
func (g *launching) rowBox(ctx context.Context, done *Launched) (box sandbox.Sandbox, fresh bool, err error) {
	var known []string
	for _, r := range g.thread.fold.Runs() {
		known = append(known, r.ID)
	}
	b, err := g.Rows.Box(ctx, rows.BoxOrder{
		Thread: g.Thread, Environment: g.Environment, Ephemeral: g.Box.Ephemeral,
		Hold: lease.OfRun(g.Thread, g.Run), Claim: true, Known: known,
	})
	if err != nil {
		return nil, false, fmt.Errorf("get the thread's sandbox: %w", err)
	}
	g.row, done.Lease, g.Box.Ephemeral = b, b.Lease, b.Row.Ephemeral
	if fresh = b.Sandbox == nil; fresh {
		err = g.makeRow(ctx, b)
	} else {
		err = g.settled(ctx, b.Sandbox.Ref())
	}
	if err == nil && g.Attached != "" {
		err = b.Lease.Hold(ctx, g.attachedHold())
	}
	if err != nil {
		return b.Sandbox, fresh, err
	}
	if g.Resume {
		done.Resume = "hydrate"
		if last := g.lastBox(); !fresh && !g.Hydrate && last != nil && b.Sandbox.Ref() == *last {
			done.Resume = "continue"
		}
	}
	return b.Sandbox, fresh, nil
}

// makeRow makes the machine of a box.
func (g *launching) makeRow(ctx context.Context, b *resolve.Box) error {
	if g.again || b.Taken {
		if err := g.dropMachines(ctx, b); err != nil {
			return err
		}
	}
	box, err := g.create(ctx, b.Labels())
	if err != nil {
		return err
	}
	return b.Made(ctx, box)
}

// lastBox returns the box of the thread's last run that had one; nil for none.
func (g *launching) lastBox() *sandbox.Ref {
	runs := g.thread.fold.Runs()
	for i := len(runs) - 1; i >= 0; i-- {
		if s := runs[i].Sandbox; s != nil && runs[i].ID != g.Run {
			return &sandbox.Ref{Provider: s.Provider, ID: s.Ref}
		}
	}
	return nil
}

// settled returns an error where the runner of a run of the thread, which a reconciler has ended, is alive in a box.
func (g *launching) settled(ctx context.Context, box sandbox.Ref) error {
	for _, r := range g.thread.fold.Runs() {
		if s := r.Box(); r.Provisional && s != nil && s.Provider == box.Provider && s.Ref == box.ID {
			alive, err := g.runs(ctx, box.ID, reap.RunnerOf(r))
			if err != nil {
				return fmt.Errorf("ask about the runner in %s: %w", box, err)
			}
			if alive {
				return stillRuns(r.ID, box)
			}
		}
	}
	return nil
}

func stillRuns(run string, box sandbox.Ref) error {
	return fmt.Errorf("the runner of run %s still runs in the sandbox %s: wait for it, or use arbe cancel", run, box)
}

// giveUp gives the box of a launch of rows up. A box in which the runner may run is left to reconcile.
func (g *launching) giveUp(ctx context.Context) error {
	if g.row == nil || g.fired {
		return nil
	}
	return g.row.Fail(ctx)
}

// endRow gives the thread's row the end of a launch, once that is on the log.
func (g *launching) endRow(ctx context.Context, status string, posted error) error {
	if g.Rows == nil || posted != nil || g.fired {
		return nil // the rows follow the log
	}
	return g.Rows.Rows.Ended(ctx, g.Thread, g.Run, status)
}
