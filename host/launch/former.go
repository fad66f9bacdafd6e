package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
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
		case err == nil && health.Exists():
			if mine, err := g.made(ctx, *ref); err != nil {
				return nil, err
			} else if !mine {
				return another("was not made for this thread")
			}
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

// made reports whether a box was made for the thread, by its label: an entry of the thread may name any box.
func (g *launching) made(ctx context.Context, box sandbox.Ref) (bool, error) {
	boxes, err := g.Provider.List(ctx, map[string]string{sandbox.LabelThread: g.Thread})
	if err != nil {
		return false, fmt.Errorf("look for the thread's sandbox %s: %w", box, err)
	}
	return slices.ContainsFunc(boxes, func(b sandbox.Box) bool {
		return b.Ref == box && b.Labels[sandbox.LabelThread] == g.Thread
	}), nil
}

// lacks returns what the box of the thread's last run had, and a new one does not get by this launch; "" for nothing.
// The thread has how many of each there were, and no more: what they are may be secret, and a writer of the thread must
// not choose what a host brings into a box.
func (g *launching) lacks() string {
	last := g.lastBox()
	if last == nil {
		return ""
	}
	had := map[string]int{}
	for _, r := range g.thread.fold.Runs() {
		if s := r.Sandbox; s != nil && s.Provider == last.Provider && s.Ref == last.ID {
			for kind, n := range g.thread.steps[r.ID] {
				had[kind] += n
			}
		}
	}
	var all []string
	for _, part := range []struct {
		kind, one, several string
		gets               bool
	}{
		{
			thread.StepRepository, "a repository (--repo, --branch)", "%d repositories (--environment-file)",
			g.Box.Repo != "" || len(g.Make.Repositories) > 0,
		},
		{
			thread.StepFolder, "a folder (--dir)", "%d folders (--environment-file)",
			g.Dir != nil || len(g.Make.Folders) > 0,
		},
		{thread.StepFile, "a file (--file)", "%d files (--file)", len(g.Files)+len(g.Make.Files) > 0},
		{
			thread.StepCommand, "a setup command (--setup)", "%d setup commands (--setup)",
			len(g.Setup.Commands)+len(g.Make.Setup) > 0,
		},
	} {
		switch n := had[thread.SetupType(part.kind)]; {
		case n == 0 || part.gets:
		case n == 1:
			all = append(all, part.one)
		default:
			all = append(all, fmt.Sprintf(part.several, n))
		}
	}
	return strings.Join(all, ", ")
}

// rowless returns ErrRow for a launch without rows that would continue in a box with a row: those who share the box
// hold it there, not on its stream. Nothing is claimed yet.
func (g *launching) rowless(ctx context.Context) error {
	last := g.lastBox()
	if g.Rows != nil || !g.Resume || last == nil || last.Provider != g.Provider.Name() {
		return nil
	}
	health, _, err := g.Provider.Probe(ctx, last.ID)
	if err != nil || !health.Exists() {
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
