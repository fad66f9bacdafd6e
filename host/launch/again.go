package launch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

// ErrCancelled is returned for a run that was cancelled before its runner was started. Its end is on the thread.
var ErrCancelled = errors.New("the run was cancelled before its runner was started")

// cancel is a request on the thread to end a run.
type cancel struct {
	run  string // "" for whatever runs
	idle bool   // no run was open when it came
}

// cancelOf returns the request that an entry is. The fold is that of the thread up to the entry.
func cancelOf(e thread.Entry, fold *thread.Fold) (c cancel, is bool) {
	var p thread.Cancel
	if json.Unmarshal(e.Payload, &p) != nil || p.Type != thread.TypeCancel {
		return c, false
	}
	return cancel{p.RunID, fold.Status() != thread.StatusRunning}, true
}

// cancelled reports whether the thread asks for the run's end. A request that names no run, and came while none was
// open, is for a run that has waited in a queue.
func (g *launching) cancelled() bool {
	for _, c := range g.thread.cancels {
		if c.run == g.Run || g.Queued && c.run == "" && c.idle {
			return true
		}
	}
	return false
}

// cancelledEnd returns the end of a run that was cancelled before its runner was started. It is provisional where an
// earlier launch may have started one.
func (g *launching) cancelledEnd() thread.Entry {
	id := g.Run + ".end.0"
	if g.again {
		id = g.Run + ".orphan.0"
	}
	return g.entry(id, thread.StatusChanged{
		Signal: g.signal(thread.TypeStatus), Status: thread.StatusCancelled,
	})
}

// Cancelled reports whether the thread of a task that waits asks for its end.
func (l *Launcher) Cancelled(ctx context.Context, t Task) (bool, error) {
	g, err := l.look(ctx, t)
	return err == nil && g.cancelled(), err
}

// Withdraw ends the run of a task that waits, and whose thread asks for that. It returns nil, too, for a run that has
// ended, and a *BusyError as Refuse does. The caller alone has the task.
func (l *Launcher) Withdraw(ctx context.Context, t Task) error {
	g, err := l.look(ctx, t)
	if err != nil {
		return err
	}
	if !g.cancelled() {
		return errors.New("the thread does not ask for the end of the task")
	}
	if err = g.begin(ctx); errors.Is(err, ErrLaunched) || errors.Is(err, ErrCancelled) {
		return nil
	}
	return err
}

// look reads the thread of a task.
func (l *Launcher) look(ctx context.Context, t Task) (*launching, error) {
	server, err := l.Client.Health(ctx)
	if err != nil {
		return nil, err
	}
	g := l.launching(t, server)
	return g, g.thread.read(ctx, l.Client)
}
