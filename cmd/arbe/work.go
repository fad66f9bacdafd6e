package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/push"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// pushOptions returns the options of a push to repo, with the tokens and addresses of this environment.
func pushOptions(repo, branch string) (push.Options, error) {
	remote, err := push.ParseRemote(repo, os.Getenv("GITHUB_SERVER_URL"))
	return push.Options{
		Remote:  remote,
		Branch:  branch,
		Token:   os.Getenv("GITHUB_TOKEN"),
		BaseURL: os.Getenv("GITHUB_API_URL"),
	}, err
}

// pushRun pushes the branch of a completed run, as its launch asked.
func (h host) pushRun(
	ctx context.Context, box sandbox.Sandbox, threadID string, run thread.Run, intent string,
) thread.Pushed {
	want := run.After.Push
	o, err := pushOptions(want.Repo, want.Branch)
	if err == nil && want.Environment != "" {
		var secrets map[string]string
		secrets, err = h.secrets(ctx, want.Environment)
		o.Token = secrets["GITHUB_TOKEN"]
	}
	if err != nil {
		return thread.Pushed{Branch: want.Branch, Error: err.Error()}
	}
	o.Intent, o.Thread, o.Run, o.NoPR = intent, threadID, run.ID, !want.PR
	return pushed(push.Push(ctx, box, o))
}

// syncRun copies the folders of a run that has ended back, as its launch asked. mine is false if another host has them.
func (h host) syncRun(
	ctx context.Context, box sandbox.Sandbox, _ string, run thread.Run,
) (result thread.Synced, mine bool) {
	return h.folders.pull(ctx, box, run.After.Sync.Delete)
}

// pushed returns the outcome of a push as an entry's payload.
func pushed(out push.Outcome) thread.Pushed {
	return thread.Pushed{
		Pushed:  out.Pushed,
		Nothing: out.Nothing,
		Branch:  out.Branch,
		Commit:  out.Commit,
		PRURL:   out.PRURL,
		Error:   out.Error,
	}
}

// unsaved describes work in a box, whose working directory is a tree of this kind, that is nowhere else; "" for none.
// Where the box itself can't tell, that is the description. An error means that the box could not be asked.
func unsaved(ctx context.Context, box sandbox.Sandbox, tree string) (what string, err error) {
	if tree == sandbox.TreeFolder {
		var changed bool
		if changed, err = launch.FolderChanged(ctx, box); changed {
			what = "its copy of the folder has changes"
		}
	} else {
		var u push.Unsaved
		switch u, err = push.CountUnsaved(ctx, box); {
		case err != nil:
		case !u.Git:
			what = "what is in it is not known: its working directory is no repository"
		case u.Any():
			what = fmt.Sprintf("its repository has %d commits and %d changed files that are not pushed", u.Commits,
				u.Changes)
		}
	}
	if errors.As(err, new(*sandbox.ExitError)) || errors.Is(err, fs.ErrNotExist) {
		return "what is in it is not known: " + err.Error(), nil
	}
	return what, err
}

// unsavedAnywhere is unsaved for each repository and folder of a box. One in which nobody ever worked may lack them.
func unsavedAnywhere(ctx context.Context, box sandbox.Sandbox, b sandbox.Box) (string, error) {
	worked, err := launch.Worked(ctx, box)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "what is in it is not known: its working directory is gone", nil
	case err != nil || !worked:
		return "", err
	}
	var found []string
	for label, tree := range map[string]string{
		sandbox.LabelRepositories: sandbox.TreeRepository, sandbox.LabelFolders: sandbox.TreeFolder,
	} {
		if b.Labels[label] == "" {
			continue
		}
		for _, path := range strings.Split(b.Labels[label], ",") {
			at, err := placeIn(box, path)
			if err != nil {
				return "", err
			}
			what, err := unsaved(ctx, at, tree)
			if err != nil {
				return "", fmt.Errorf("%s: %w", path, err)
			}
			if what != "" {
				found = append(found, path+": "+what)
			}
		}
	}
	if b.Labels[sandbox.LabelRepositories] == "" && b.Labels[sandbox.LabelFolders] == "" {
		return unsaved(ctx, box, b.Labels[sandbox.LabelTree])
	}
	slices.Sort(found)
	return strings.Join(found, "; "), nil
}

// placeIn returns a box with the working directory path below its workspace; "" for its own.
func placeIn(box sandbox.Sandbox, path string) (sandbox.Sandbox, error) {
	if path == "" {
		return box, nil
	}
	p, is := box.(interface {
		At(path string) (sandbox.Sandbox, error)
	})
	if !is {
		return nil, errors.New("the box has no workspace")
	}
	return p.At(path)
}
