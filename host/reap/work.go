package reap

import (
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
