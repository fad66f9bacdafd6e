package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	for _, r := range slices.Backward(g.thread.fold.Runs()) {
		if s := r.Sandbox; s != nil && r.ID != g.Run {
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

// giveUp gives the box of a failed launch up: its row's, or one that the launch has made. A box in which the runner may
// run is left to reconcile.
func (g *launching) giveUp(ctx context.Context, box sandbox.Sandbox, fresh bool) error {
	switch {
	case g.fired:
		return nil
	case g.row != nil:
		return g.row.Fail(ctx)
	case fresh:
		return g.discard(ctx, box.Ref())
	}
	return nil
}

// endRow gives the thread's row the end of a launch, once that is on the log.
func (g *launching) endRow(ctx context.Context, status string, posted error) error {
	if g.Rows == nil || posted != nil || g.fired {
		return nil // the rows follow the log
	}
	return g.Rows.Rows.Ended(ctx, g.Thread, g.Run, status)
}

// CommandBox returns the box of a thread that has a row, opened, for the command t.Exec. It has the hold, which the
// caller renews and drops, and claims no run. A box that does not exist or is dead is made as for a launch: by the
// environment of the row, with each step on the thread; but no agent is installed. If it fails there is no hold, and
// what it made is deleted.
func (l *Launcher) CommandBox(
	ctx context.Context, t Task, hold rows.Hold,
) (sandbox.Sandbox, lease.Lease, error) {
	server, err := l.Client.Health(ctx)
	if err != nil {
		return nil, nil, err
	}
	g := l.launching(t, server)
	if err := g.resolve(ctx); err != nil {
		return nil, nil, g.redact.Error(err)
	}
	g.steps = newSteps(g)
	var b *resolve.Box
	err = g.steps.do(ctx, "", "waiting for the sandbox", func() (err error) {
		b, err = g.Rows.Box(ctx, rows.BoxOrder{
			Thread: g.Thread, Environment: g.Environment, Ephemeral: g.Box.Ephemeral, Hold: hold,
		})
		return err
	})
	if err != nil {
		return nil, nil, g.redact.Error(fmt.Errorf("get the thread's sandbox: %w", err))
	}
	if b.Sandbox != nil {
		return b.Sandbox, b.Lease, nil
	}
	if err = g.make(ctx, b); err == nil {
		err = b.Lease.Hold(ctx, hold) // it may have expired meanwhile
	}
	if err != nil {
		lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return nil, nil, g.redact.Error(errors.Join(err, b.Fail(lasting)))
	}
	return b.Sandbox, b.Lease, nil
}

// make makes the machine of a new box, with its content.
func (g *launching) make(ctx context.Context, b *resolve.Box) error {
	if err := g.makeRow(ctx, b); err != nil {
		return err
	}
	if err := g.Make.Fill(ctx, b.Sandbox, g.steps.do); err != nil {
		return err
	}
	if err := g.Make.SetUp(ctx, b.Sandbox, g.secrets, g.steps.do, g.output); err != nil {
		return err
	}
	return b.Ready(ctx)
}
