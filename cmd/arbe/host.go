package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// host has the resources of this host for commands that launch or settle runs.
type host struct {
	data      daemon.Data
	client    func(threadID string) (*client.Client, error) // for writing any thread
	boxes     *boxes
	providers map[string]reconcile.Provider // those that are configured here
	folders   folders
	database  func(context.Context) (*control.DB, error) // opens it; nil for none

	limits limits // of its reconciler
	keys   keyset // of secrets
}

// host returns this host, with the data folder, the database and the limits of the command line.
func (c command) host() (host, error) {
	d, err := c.data()
	if err == nil {
		err = c.keysFit()
	}
	// A token in the environment is for one thread. A host also writes to other threads and to the leases of boxes.
	cl := func(id string) (*client.Client, error) { return c.client(id, token.ScopeWrite) }
	all := boxesOf(c.kinds, d)
	return host{
		data: d, client: cl, boxes: all, providers: all.configured(), folders: foldersOf(d), database: c.opened(),
		limits: c.limits, keys: c.keys,
	}, err
}

// provision returns what this host gives to runs, commands and tasks, which may use local boxes. key signs tokens.
func (h host) provision(key []byte, logger *slog.Logger) *provision.Host {
	to := &provision.Host{
		Client:    h.client,
		Provider:  func(place, name string) (provision.Provider, error) { return h.boxes.named(place, name) },
		StreamURL: h.boxStreamURL,
		Runtimes:  provision.Runtimes(h.boxes.kinds),
		Runner:    runnerFor, Remember: func(id string) error { return remember(h.data, id) }, Key: key, Log: logger,
		Box:        sandbox.Options{GitHub: os.Getenv("GITHUB_SERVER_URL")},
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

// reconciler returns a reconciler of this host's boxes.
func (h host) reconciler() *reconcile.Reconciler {
	r := &reconcile.Reconciler{
		Client: h.client, Providers: h.providers,
		Host:        reconcile.Host{Push: h.pushRun, Sync: h.syncRun, Unsaved: unsavedAnywhere},
		OrphanAfter: h.limits.orphanAfter, ReapAfter: h.limits.reapAfter, NotifyAfter: h.limits.notifyAfter,
		Harnesses: session.Harnesses(),
	}
	if rows, is := h.rows(); is {
		r.Rows = rows
	}
	return r
}

// boxStreamURL returns the address at which a box of a provider reaches the thread server.
func (h host) boxStreamURL(provider string) (string, error) {
	if at := os.Getenv("ARBE_BOX_STREAM_URL"); at != "" {
		return at, nil
	}
	at, err := serverURL(h.data)
	if err != nil {
		return "", err
	}
	p, err := h.boxes.named("provider", provider)
	if err != nil {
		return "", err
	}
	if !p.Traits().SameMachine && onThisMachine(at) {
		const want = "a box elsewhere can't reach the thread server at %s: " +
			"set ARBE_BOX_STREAM_URL to an address of it, or of an arbe proxy, that the box can reach"
		return "", cmdline.Fail(exitConfig, want, at)
	}
	return at, nil
}

// runnerFor returns the path of the runner's binary for an architecture.
func runnerFor(arch string) (string, error) {
	places := provision.Runners{Set: os.Getenv("ARBE_RUNNER_BIN"), Packaged: "/usr/lib/arbe"}
	if self, err := os.Executable(); err == nil {
		places.Beside = filepath.Dir(self)
	}
	return places.For(arch)
}

// errLogUnknown is the error of a database that is not opened for want of the thread server's answer.
var errLogUnknown = errors.New("which log the database has to be of is not known")

// opened returns what opens the database that the flags name, once, for the log of the thread server. It is nil without
// a database. The database is open until the program ends. Callers at the same time share one attempt, each for as long
// as its own context lasts.
//
// Where a proxy answers for the server, its log is not known, and nothing is compared.
func (c command) opened() func(context.Context) (*control.DB, error) {
	if c.database == "" {
		return nil
	}
	return control.Once(func(ctx context.Context) (*control.DB, error) {
		log, err := c.installation(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errLogUnknown, reach(err))
		}
		db, err := control.Open(ctx, c.database, control.Config{})
		if err != nil {
			return nil, err
		}
		return db.Of(log), nil
	})
}

// installation returns the id of the thread server's log; "" where the server has none.
func (c command) installation(ctx context.Context) (string, error) {
	_, url, err := c.server()
	if err != nil {
		return "", err
	}
	h, err := (&client.Client{Base: thread.BaseURL(url), HTTP: c.http}).Health(ctx)
	return h.Installation, err
}

// rows returns the rows of threads and boxes; false without a database.
func (h host) rows() (control.Boxes, bool) { return control.Boxes{Open: h.database}, h.database != nil }

// leaseOf returns the lease of a box with these labels.
func (h host) leaseOf(box sandbox.Ref, labels map[string]string) (lease.Lease, error) {
	if row := labels[sandbox.LabelRow]; row != "" {
		rows, is := h.rows()
		if !is {
			return nil, noRows(box)
		}
		return rows.Lease(row), nil
	}
	cl, err := h.client(lease.Stream(box))
	return lease.OnStream{Client: cl}, err
}

// noRows is the error of a command that needs the row of a box.
func noRows(box sandbox.Ref) error {
	return &cmdline.Exit{Status: exitConfig, Cause: provision.NoRows(box)}
}
