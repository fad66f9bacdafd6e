package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/rows"
)

// Waiting is the tasks that are not launched yet, as one sees them who ends them before that.
type Waiting interface {
	Queue
	// TakeOne gives a task that no host has to this host, also one that is not due yet. is is false for a thread without
	// such a task.
	TakeOne(ctx context.Context, thread string, lease time.Duration) (o rows.Task, is bool, err error)
}

// withdrawLease is how long a host that died while it withdrew a task keeps it from the others.
const withdrawLease = 20 * time.Second

// Withdraw ends a task that waits, if its thread asks for that. One that a host has is left to that host: done is false
// then.
func (h *Host) Withdraw(ctx context.Context, q Waiting, o rows.Task) (done bool, err error) {
	client, err := h.Client(o.Thread)
	if err != nil {
		return false, err
	}
	launcher := &launch.Launcher{Client: client}
	asked, err := launcher.Cancelled(ctx, h.task(o))
	if err != nil || !asked {
		return false, err
	}
	o, is, err := q.TakeOne(ctx, o.Thread, withdrawLease)
	if err != nil || !is {
		return false, err
	}
	if o.Parent != "" {
		err = h.Announce(ctx, o)
	}
	if err == nil {
		err = h.Remember(o.Thread)
	}
	if err == nil {
		err = launcher.Withdraw(ctx, h.task(o))
	}
	if err != nil {
		err = fmt.Errorf("end the task of thread %s: %w", o.Thread, err)
		return false, errors.Join(err, q.PutBack(ctx, o.Thread, 0, false))
	}
	return true, q.Done(ctx, o.Thread)
}
