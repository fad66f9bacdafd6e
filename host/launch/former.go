package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// former returns the box of the thread's last run that had one; nil if it is not live.
func (g *launching) former(ctx context.Context) (sandbox.Sandbox, error) {
	runs := g.thread.fold.Runs()
	for i := len(runs) - 1; i >= 0; i-- {
		ref := runs[i].Sandbox
		if ref == nil || runs[i].ID == g.Run {
			continue
		}
		if ref.Provider != g.Provider.Name() {
			g.progress("the thread's sandbox is %s:%s; making another one", ref.Provider, ref.Ref)
			return nil, nil
		}
		health, why, err := g.Provider.Probe(ctx, ref.Ref)
		if err == nil && health == sandbox.Live {
			mine := false
			if mine, err = g.made(ctx, sandbox.Ref{Provider: ref.Provider, ID: ref.Ref}); err == nil && !mine {
				g.progress("the sandbox %s:%s was not made for this thread; making another one", ref.Provider, ref.Ref)
				return nil, nil
			}
		}
		if err == nil && health == sandbox.Live && runs[i].Provisional {
			// A reconciler ended the run, but its runner may still run behind a network that is down.
			var alive bool
			if alive, err = g.runs(ctx, ref.Ref, sandbox.Process{}); err == nil && alive {
				return nil, stillRuns(runs[i].ID, sandbox.Ref{Provider: ref.Provider, ID: ref.Ref})
			}
		}
		if err == nil && health == sandbox.Live {
			// Hold it first: a box that is held is not released while it is opened.
			err = g.hold(ctx, sandbox.Ref{Provider: ref.Provider, ID: ref.Ref})
			if err != nil && !errors.Is(err, lease.ErrReleased) {
				return nil, err
			}
			var box sandbox.Sandbox
			if err == nil {
				err = g.steps.do(ctx, "", "opening the sandbox "+ref.Provider+":"+ref.Ref, func() (err error) {
					box, err = g.Provider.Open(ctx, ref.Ref)
					return err
				})
			}
			if err == nil {
				g.progress("continuing in the sandbox %s", box.Ref())
				return box, nil
			}
		}
		if err != nil {
			why = err.Error()
		}
		g.progress("the sandbox %s:%s is %s (%s); making another one", ref.Provider, ref.Ref, health, why)
		return nil, nil
	}
	return nil, nil
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
