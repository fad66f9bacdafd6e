package launch

import (
	"context"
	"encoding/json"
	"errors"

	"arbe.0sk.ar/runner/thread"
)

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
