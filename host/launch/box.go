package launch

import (
	"context"
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
)

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
