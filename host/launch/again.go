package launch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// ErrLaunched is returned for a run that an earlier launch has started, or that has ended: nothing is left to do.
var ErrLaunched = errors.New("the run was launched before")

// begin claims the thread for the run, or continues a run that an earlier launch has left open. It ends a run that was
// cancelled meanwhile, with ErrCancelled.
func (g *launching) begin(ctx context.Context) error {
	run, there := g.thread.fold.Run(g.Run)
	switch {
	case !there && g.cancelled():
		return cmp.Or(g.claim(ctx, g.cancelledEnd()), ErrCancelled)
	case !there:
		if err := g.unclaimed(ctx); err != nil {
			return err
		}
		return g.claim(ctx)
	case run.Status != thread.StatusRunning || run.Started != nil:
		return ErrLaunched
	}
	if g.again = true; g.cancelled() {
		return cmp.Or(g.failed(ctx, nil, false, ErrCancelled), ErrCancelled)
	}
	g.progress("continuing the launch of run %s", g.Run)
	return nil
}

// unbegun returns the error of a run's beginning. Where the answer was lost and the run is on the thread, the failure
// is posted there, too.
func (g *launching) unbegun(ctx context.Context, cause error) error {
	_, busy := errors.AsType[*BusyError](cause)
	if busy || errors.Is(cause, ErrLaunched) || errors.Is(cause, ErrCancelled) {
		return cause
	}
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := g.thread.read(lasting, g.Client); err != nil {
		return fmt.Errorf("begin the run, which may be on the thread: %w", errors.Join(cause, err))
	}
	cause = fmt.Errorf("begin the run: %w", cause)
	if g.thread.status(g.Run) != thread.StatusRunning {
		return cause
	}
	return errors.Join(cause, g.end(lasting, nil, false, cause))
}

// end ends a launch that has failed. One that will be continued gives its box up, and the run stays open.
func (g *launching) end(ctx context.Context, box sandbox.Sandbox, fresh bool, cause error) error {
	lasting := context.WithoutCancel(ctx)
	if g.Continued == nil || g.fired || errors.Is(cause, ErrCancelled) || !g.Continued(ctx, cause) {
		return g.failed(lasting, box, fresh, cause)
	}
	lasting, cancel := context.WithTimeout(lasting, cleanupTimeout)
	defer cancel()
	return g.giveUp(lasting, box, fresh)
}

// name posts the box of the run. A launch that continues another one in another box posts that, too.
func (g *launching) name(ctx context.Context, box sandbox.Ref) error {
	id := g.Run + ".sandbox"
	if run, _ := g.thread.fold.Run(g.Run); run.Sandbox != nil {
		if run.Sandbox.Provider == box.Provider && run.Sandbox.Ref == box.ID {
			return nil
		}
		sum := sha256.Sum256([]byte(box.String()))
		id += "." + hex.EncodeToString(sum[:6])
	}
	return g.post(ctx, g.entry(id, thread.SandboxOf{
		Signal: g.signal(thread.TypeSandbox), Parent: g.Parent, After: g.After,
		Sandbox: thread.Box{
			Sandbox: thread.Sandbox{Provider: box.Provider, Ref: box.ID}, Ephemeral: g.Box.Ephemeral,
		},
	}))
}

// dropMachines deletes what an earlier attempt, which has died, has made for the row of a box that is not ready: its
// runner was never started.
func (g *launching) dropMachines(ctx context.Context, box *resolve.Box) error {
	boxes, err := g.Rows.Provider.List(ctx, map[string]string{sandbox.LabelRow: box.Row.ID})
	if err == nil && len(boxes) > 0 {
		err = box.Renew(ctx) // after the list: what another launch makes since is not in it
	}
	for _, b := range boxes {
		if err == nil {
			err = g.discard(ctx, b.Ref)
		}
	}
	if err != nil {
		return fmt.Errorf("delete the sandbox of an earlier attempt: %w", err)
	}
	return nil
}

// Refuse posts that a task is not launched, and why. It returns nil, too, for a run that has started or ended, and a
// *BusyError where another run is open: the task's run has no place on the thread then.
func (l *Launcher) Refuse(ctx context.Context, t Task, cause error) error {
	g, err := l.look(ctx, t)
	if err != nil {
		return err
	}
	switch err := g.begin(ctx); {
	case errors.Is(err, ErrLaunched), errors.Is(err, ErrCancelled):
		return nil
	case err != nil:
		return err
	}
	return g.failed(ctx, nil, false, cause)
}
