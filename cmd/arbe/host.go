package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/push"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// host is what commands that launch or settle runs need of this host.
type host struct {
	data      daemon.Data
	client    func(threadID string) (*client.Client, error) // for writing any thread
	providers map[string]reconcile.Provider                 // those that are configured here
	folders   folders
	database  func(context.Context) (*control.DB, error) // opens it; nil for none

	resolve func(ctx context.Context, id string) (string, error) // the whole id for a unique prefix of a UUID
	limits  limits                                               // of its reconciler
	keys    keyset                                               // of secrets
}

// provider is a provider of boxes, as launches and the reconciler use it.
type provider interface {
	provision.Provider
	reconcile.Provider
}

// host returns this host, with the data folder, the database and the limits of the command line.
func (c command) host() (host, error) {
	d, err := c.data()
	if err == nil {
		err = c.keysFit()
	}
	// A token in the environment is for one thread. A host also writes to other threads and to the leases of boxes.
	cl := func(id string) (*client.Client, error) { return c.client(id, token.ScopeWrite) }
	return host{
		data: d, client: cl, providers: providers(d), folders: foldersOf(d), database: c.opened(),
		resolve: c.toChange, limits: c.limits, keys: c.keys,
	}, err
}

// provision returns what this host gives to runs, commands and tasks, which may use local boxes. key signs tokens.
func (h host) provision(key []byte, logger *slog.Logger) *provision.Host {
	to := &provision.Host{
		Client:    h.client,
		Provider:  func(place, name string) (provision.Provider, error) { return providerNamed(h.data, place, name) },
		StreamURL: func(provider string) (string, error) { return boxStreamURL(h.data, provider) },
		Runner:    runnerFor, Remember: func(id string) error { return remember(h.data, id) }, Key: key, Log: logger,
		Box:        sandbox.Options{GitHub: os.Getenv("GITHUB_SERVER_URL"), Target: os.Getenv("DAYTONA_TARGET")},
		Token:      os.Getenv("GITHUB_TOKEN"),
		LocalBoxes: true,
	}
	if boxes, is := h.rows(); is {
		to.Boxes, to.Secrets = boxes, h.secrets
		to.Rows = func(ctx context.Context) (provision.Rows, error) {
			db, err := h.database(ctx)
			if err != nil {
				return nil, err
			}
			return db.Host(), nil
		}
	}
	return to
}

// minting returns clients whose tokens are signed here, even if the environment has a token.
func minting(key []byte, like *client.Client) func(id string) (*client.Client, error) {
	return func(id string) (*client.Client, error) { return provision.Client(key, like, id), nil }
}

// providers returns the providers that are configured here.
func providers(d daemon.Data) map[string]reconcile.Provider {
	all := map[string]reconcile.Provider{}
	for _, name := range []string{"local", "daytona"} {
		// A provider that is not configured has no boxes of this host.
		if provider, err := providerNamed(d, "provider", name); err == nil {
			all[name] = provider
		}
	}
	return all
}

// reconciler returns a reconciler of this host's boxes.
func (h host) reconciler() *reconcile.Reconciler {
	r := &reconcile.Reconciler{
		Client: h.client, Providers: h.providers, Host: h.work(),
		OrphanAfter: h.limits.orphanAfter, ReapAfter: h.limits.reapAfter, NotifyAfter: h.limits.notifyAfter,
		Harnesses: session.Harnesses(),
	}
	if rows, is := h.rows(); is {
		r.Rows = rows
	}
	return r
}

// work returns what this host can do for a run that has ended.
func (h host) work() reconcile.Host {
	return reconcile.Host{Push: pushRun, Sync: h.folders.sync, Unsaved: unsavedAnywhere}
}

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
func pushRun(ctx context.Context, box sandbox.Sandbox, threadID string, run thread.Run, intent string) thread.Pushed {
	want := run.After.Push
	o, err := pushOptions(want.Repo, want.Branch)
	if err != nil {
		return thread.Pushed{Branch: want.Branch, Error: err.Error()}
	}
	o.Intent, o.Thread, o.Run, o.NoPR = intent, threadID, run.ID, !want.PR
	return pushed(push.Push(ctx, box, o))
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

// unsaved describes work in a box that is nowhere else; "" for none. Where the box itself can't tell, that is the
// description. An error means that the box could not be asked.
func unsaved(ctx context.Context, box sandbox.Sandbox, b sandbox.Box) (what string, err error) {
	if b.Labels[sandbox.LabelTree] == sandbox.TreeFolder {
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
	var failed *sandbox.ExitError
	if errors.As(err, &failed) || errors.Is(err, fs.ErrNotExist) {
		return "what is in it is not known: " + err.Error(), nil
	}
	return what, err
}

// exitBusy is the exit status of a launch on a thread with an open run (EX_TEMPFAIL).
const exitBusy = 75

// busy gives a *launch.BusyError its exit status.
func busy(err error) error { return &cmdline.Exit{Status: exitBusy, Cause: err} }
