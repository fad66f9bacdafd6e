package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// box returns the box of the run, which holds its lease. fresh is set if it was made for the run.
func (g *launching) box(ctx context.Context, done *Launched) (box sandbox.Sandbox, fresh bool, err error) {
	if g.Rows != nil {
		return g.rowBox(ctx, done)
	}
	if g.Resume {
		if done.Resume = "hydrate"; !g.Hydrate {
			done.Resume = "continue"
		}
		if box, err = g.former(ctx); box != nil || err != nil {
			if box != nil {
				done.Lease = g.lease(box.Ref())
			}
			return box, false, err
		}
		done.Resume = "hydrate" // a new box has no session
		if what := g.lacks(); what != "" {
			g.progress("the new sandbox lacks what the former one had: %s", what)
		}
	}
	if box, err = g.create(ctx, nil); err != nil {
		return nil, false, err
	}
	if err := g.hold(ctx, box.Ref()); err != nil {
		return nil, false, errors.Join(err, g.discard(context.WithoutCancel(ctx), box.Ref()))
	}
	done.Lease = g.lease(box.Ref())
	return box, true, nil
}

// create makes a box, with more labels.
func (g *launching) create(ctx context.Context, labels map[string]string) (box sandbox.Sandbox, err error) {
	g.progress("making a %s sandbox", g.Provider.Name())
	o := g.Box
	if o.AutoStop, err = g.autoStop(); err != nil {
		return nil, err
	}
	o.Labels = map[string]string{sandbox.LabelThread: g.Thread}
	if g.Run != "" {
		o.Labels[sandbox.LabelRun] = g.Run
	}
	if g.server.Installation != "" {
		o.Labels[sandbox.LabelInstallation] = g.server.Installation
	}
	switch {
	case o.Repo != "":
		o.Labels[sandbox.LabelTree] = sandbox.TreeRepository
	case g.Dir != nil:
		o.Labels[sandbox.LabelTree] = sandbox.TreeFolder
	}
	g.Make.label(o.Labels)
	o.Work = cmp.Or(o.Work, g.Make.work())
	maps.Copy(o.Labels, g.Box.Labels)
	maps.Copy(o.Labels, labels)
	o.Progress = func(step string) { g.progress("%s", step) }
	kind := thread.StepBox
	if o.Repo != "" {
		kind = thread.StepRepository
	}
	err = g.steps.do(ctx, kind, "making a "+g.Provider.Name()+" sandbox", func() (err error) {
		box, err = g.Provider.Create(ctx, o)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make a sandbox: %w", err)
	}
	return box, nil
}

// reaper returns what decides about boxes without a row.
func (l *Launcher) reaper(labels map[string]string) *reap.Reaper {
	return &reap.Reaper{
		Name: l.Provider.Name(), Provider: l.Provider,
		Client: func(id string) (*client.Client, error) {
			if id == l.Client.Thread {
				return l.Client, nil
			}
			return l.Boxes(id), nil
		},
		Listed: func(ctx context.Context, id string) (sandbox.Box, bool, error) {
			boxes, err := l.Provider.List(ctx, labels)
			b, is := reap.Find(boxes, id)
			return b, is, err
		},
	}
}

// discard deletes a box that this launch has made and gives up.
func (g *launching) discard(ctx context.Context, box sandbox.Ref) error {
	return g.reaper(nil).Discard(ctx, box, "", g.Thread, "its launch has failed")
}

// lease returns the lease of a box without a row.
func (l *Launcher) lease(box sandbox.Ref) lease.Lease {
	return lease.OnStream{Client: l.Boxes(lease.Stream(box))}
}

// hold holds a box for the run, and for this host if it stays attached.
func (g *launching) hold(ctx context.Context, box sandbox.Ref) error {
	l := g.lease(box)
	if err := l.Hold(ctx, lease.OfRun(g.Thread, g.Run)); err != nil || g.Attached == "" {
		return err
	}
	return l.Hold(ctx, g.attachedHold())
}

// attachedHold returns this host's own hold.
func (g *launching) attachedHold() rows.Hold {
	return rows.Hold{Holder: g.Attached, ThreadID: g.Thread, RunID: g.Run, TTL: lease.TTL}
}
