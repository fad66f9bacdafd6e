package reap

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// WantsPush reports whether a push that a run's launch asked for is pending.
func WantsPush(run thread.Run) bool {
	return run.After != nil && run.After.Push != nil && run.Status == thread.StatusCompleted &&
		(run.Push == nil || run.Push.Error != "" && !run.Push.Nothing)
}

// WantsSync reports whether a copy back that a run's launch asked for is pending.
func WantsSync(run thread.Run) bool {
	return run.After != nil && run.After.Sync != nil &&
		(run.Status == thread.StatusCompleted || run.After.Sync.Failed) &&
		(run.Sync == nil || run.Sync.Error != "")
}

// unsavedTrees returns the box without what the run's push and copy back have saved, for Reaper.Unsaved: a push saves
// the working directory, a copy back saves the folders. any is false if nothing is left to look at.
func unsavedTrees(b sandbox.Box, run thread.Run) (rest sandbox.Box, any bool) {
	pushed := run.Push != nil && (run.Push.Pushed || run.Push.Nothing)
	synced := run.Sync != nil && run.Sync.Error == ""
	repositories, folders := b.Labels[sandbox.LabelRepositories], b.Labels[sandbox.LabelFolders]
	if repositories == "" && folders == "" {
		return b, !pushed && !synced
	}
	if pushed && repositories != "" {
		_, repositories, _ = strings.Cut(repositories, ",")
	}
	if synced {
		folders = ""
	}
	b.Labels = maps.Clone(b.Labels)
	b.Labels[sandbox.LabelRepositories], b.Labels[sandbox.LabelFolders] = repositories, folders
	return b, repositories != "" || folders != ""
}

// runners asks for the runners of runs that a host has ended: they may still run behind a network that is down.
func (l *look) runners(ctx context.Context) error {
	for i := range l.facts.Needs {
		n := &l.facts.Needs[i]
		if !n.ask || l.facts.Answer == Faulty {
			continue
		}
		p := RunnerOf(n.run)
		if l.condemned() {
			p = sandbox.Process{} // any
		}
		var err error
		if n.Runner, err = l.Reaper.runner(ctx, l.box.Ref.ID, p); err != nil {
			return fmt.Errorf("ask about the runner in %s: %w", l.box.Ref, err)
		}
	}
	return nil
}

// works looks for work that would be lost.
func (l *look) works(ctx context.Context) error {
	for i := range l.facts.Needs {
		n := &l.facts.Needs[i]
		if l.facts.For == Sweep && n.Since >= l.facts.ReapAfter {
			continue
		}
		switch {
		case WantsPush(n.run):
			n.Wanted = "its work is not pushed"
		case WantsSync(n.run):
			n.Wanted = "its folder is not copied back"
		}
		rest, any := unsavedTrees(l.box.Box, n.run)
		if !any || n.Wanted != "" && l.facts.For == Sweep {
			continue
		}
		var err error
		if n.Unsaved, err = l.unsaved(ctx, rest, n.run); err != nil {
			return fmt.Errorf("look into the sandbox %s: %w", l.box.Ref, err)
		}
	}
	return nil
}

// unsaved describes work that exists in the box only. A stopped box is not started for that, but kept. An error means
// that the answer is unknown now.
func (l *look) unsaved(ctx context.Context, b sandbox.Box, run thread.Run) (what string, err error) {
	tree := b.Labels[sandbox.LabelTree] != "" && l.Unsaved != nil // else its working directory was empty
	switch {
	case l.facts.Answer == Faulty && (tree || l.condemned()):
		return "what is in it is not known: it is " + l.facts.Why, nil
	case l.facts.For == Sweep && run.Kept != nil && run.Kept.Sandbox.Ref == b.Ref.ID:
		return run.Kept.Reason, nil // known already: a stopped box stays stopped
	case !tree:
		return "", nil
	}
	var why string
	health, err := l.Reaper.probe(ctx, b.Ref.ID, &why)
	switch {
	case err != nil:
		return "", err
	case health == sandbox.Gone:
		return "", sandbox.ErrGone
	case health != sandbox.Live && !l.opens(health):
		return "what is in it is not known: it is " + why, nil
	}
	box, err := l.Provider.Open(ctx, b.Ref.ID)
	if err == nil {
		what, err = l.Unsaved(ctx, box, b)
	}
	return what, err
}

// opens reports whether a box that does not run may be opened to look into it: one that its provider has frozen, and
// freezes again. One that is stopped stays so.
func (l *look) opens(health sandbox.Health) bool {
	_, freezes := l.Provider.(sandbox.Waker)
	return freezes && health == sandbox.Frozen
}
