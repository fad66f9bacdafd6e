package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/sandbox"
)

// former returns the box of the thread's last run that had one; nil where that is gone or released, or no box of this
// host: the thread needs another one. An error, maybe a *reap.DoubtError, is of a box that may be there: another one
// would be without the run's work.
func (g *launching) former(ctx context.Context) (sandbox.Sandbox, error) {
	ref := g.lastBox()
	if ref == nil {
		return nil, nil
	}
	another := func(why string) (sandbox.Sandbox, error) {
		g.progress("the sandbox %s %s; making another one", ref, why)
		return nil, nil
	}
	if ref.Provider != g.Provider.Name() {
		return another("is of another provider")
	}
	for range looks {
		health, why, err := g.Provider.Probe(ctx, ref.ID)
		switch {
		case errors.Is(err, sandbox.ErrForeign):
			return another(err.Error())
		case err == nil && health == sandbox.Live:
			box, err := g.reopen(ctx, *ref)
			if errors.Is(err, lease.ErrReleased) {
				return another("has been released")
			}
			if !errors.Is(err, sandbox.ErrGone) {
				return box, err
			}
		case err != nil || health != sandbox.Gone:
			return nil, fmt.Errorf("open the sandbox %s: %w", ref, cmp.Or(err, errors.New(why)))
		}
		g.progress("the provider answers %s for the sandbox %s: asking again", why, ref)
		labels := map[string]string{sandbox.LabelThread: g.Thread}
		gone, err := g.reaper(labels).Replace(ctx, reap.Box{Box: sandbox.Box{Ref: *ref}}, lease.OfRun(g.Thread, g.Run))
		switch {
		case err != nil:
			return nil, err
		case gone:
			return another("is gone")
		}
	}
	return nil, fmt.Errorf("open the sandbox %s: it goes and comes", ref)
}

// reopen opens a live box of an earlier run. It holds the box first, so that nobody releases it meanwhile.
func (g *launching) reopen(ctx context.Context, ref sandbox.Ref) (box sandbox.Sandbox, err error) {
	if err := g.settled(ctx, ref); err != nil {
		return nil, err
	}
	if err := g.hold(ctx, ref); err != nil {
		return nil, err
	}
	err = g.steps.do(ctx, "", "opening the sandbox "+ref.String(), func() (err error) {
		box, err = g.Provider.Open(ctx, ref.ID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open the sandbox %s: %w", ref, err)
	}
	g.progress("continuing in the sandbox %s", ref)
	return box, nil
}

// rowless returns ErrRow for a launch without rows that would continue in a box with a row: those who share the box
// hold it there, not on its stream. Nothing is claimed yet.
func (g *launching) rowless(ctx context.Context) error {
	last := g.lastBox()
	if g.Rows != nil || !g.Resume || last == nil || last.Provider != g.Provider.Name() {
		return nil
	}
	health, _, err := g.Provider.Probe(ctx, last.ID)
	if err != nil || health != sandbox.Live {
		return nil // the launch makes another one
	}
	// Most boxes were made for their thread. One that it shares has another one's label.
	for _, labels := range []map[string]string{
		{sandbox.LabelThread: g.Thread}, {sandbox.LabelInstallation: g.server.Installation},
	} {
		boxes, err := g.Provider.List(ctx, labels)
		if err != nil {
			return fmt.Errorf("look for the thread's sandbox %s: %w", last, err)
		}
		for _, b := range boxes {
			if b.Ref == *last && b.Labels[sandbox.LabelRow] != "" {
				return fmt.Errorf("the thread's sandbox %s: %w", last, ErrRow)
			} else if b.Ref == *last {
				return nil
			}
		}
		if g.server.Installation == "" {
			break
		}
	}
	return nil
}
