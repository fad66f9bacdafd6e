// Package provision decides what a run, a command and a delegated task get: which bot drives, which environment and
// which provider make the box, which tokens, secrets, files and variables go into it, and what a member's task may
// have. The command line, a server's HTTP API and the loop that launches delegated tasks call the same methods, so that
// a rule stands once.
//
// A Provisioner is that loop. A task's row is there before anything else. A provisioner takes it for the time of a
// lease, announces it on the parent's thread, launches it, and ends it. While it launches it renews the lease, so the
// task of a host that has died is taken by another one. A host that is stopped gives its tasks back. Repeats are
// harmless by their ids: the announcement's follows from the child's thread, and the run's id, too, so that the
// thread's log accepts one run.
//
// The package prints nothing and reads no flag and no variable of its process. Its errors have no exit status.
package provision

import (
	"context"
	"fmt"
	"log/slog"

	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread/client"
)

// Host prepares runs, commands and tasks on this host. Its methods may be called at the same time.
type Host struct {
	// Client returns a client that writes a thread.
	Client func(threadID string) (*client.Client, error)
	// Provider returns the provider of boxes with a name, which stands in a place, such as --sandbox.
	Provider func(place, name string) (Provider, error)
	// StreamURL returns the address of the thread server as a box of the provider reaches it.
	StreamURL func(provider string) (string, error)
	// Runner returns the path of the runner's binary for an architecture.
	Runner func(arch string) (string, error)
	// Remember notes a thread here before a run or a command is on it, so that reconcile --all finds it.
	Remember func(threadID string) error
	Key      []byte // signs tokens
	Runtimes recipe.Runtimes
	Log      *slog.Logger

	// Rows opens the rows, which may be away; nil without a database. Boxes are its rows of boxes, and Secrets opens
	// the secrets of an environment.
	Rows    func(ctx context.Context) (Rows, error)
	Boxes   resolve.Rows
	Secrets func(ctx context.Context, environment string) (map[string]string, error)

	Box        sandbox.Options   // of each box
	Token      string            // for repositories: the operator's, which no member's task gets
	LocalBoxes bool              // commands, and tasks of members, may run as the user of this process
	Env        map[string]string // of the agent of each task
	Files      []launch.File     // in the box of each task
}

// Rows are the rows of the host: all houses.
type Rows interface {
	Thread(ctx context.Context, id string) (rows.Thread, error)
	CreateThread(ctx context.Context, n rows.NewThread) (rows.Thread, error)
	Agent(ctx context.Context, id string) (rows.Agent, error)
	// BotConfig returns a bot's model and instructions, which its coding agent gets, too.
	BotConfig(ctx context.Context, id string) (rows.BotConfig, error)
	// Drivers returns a house's bots of a harness that are in use, in the order of their joining.
	Drivers(ctx context.Context, house, harness string) ([]rows.Agent, error)
	// Place returns where the next run or command of a thread goes, by the environment with the id wanted where that is
	// not "". It returns rows.ErrAbsent for a thread without a row.
	Place(ctx context.Context, thread, wanted string) (rows.Place, error)
	// Admit lets a run of a thread begin, which is launched then. It returns a *rows.HeldError where the thread's house
	// runs as many as it may: the run keeps its turn for some seconds.
	Admit(ctx context.Context, thread, run string) error
	// Dismiss takes back that a run was admitted, which is not on the thread's log.
	Dismiss(ctx context.Context, thread, run string) error
}

// Provider is a provider of boxes.
type Provider interface {
	launch.Provider
	Traits() sandbox.Traits
	// Check returns an error for options that no box of the provider can have.
	Check(o sandbox.Options) error
}

// UnreachableError is returned for a box of a provider that this host can't use.
type UnreachableError struct{ error }

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.error }

// NoRows returns the error of a box that has a row, where there is no database.
func NoRows(box sandbox.Ref) error {
	const text = "%s has a row in a database, which tells who needs it: set ARBE_DATABASE or use --database"
	return fmt.Errorf(text, box)
}

// Follow makes a task's box by the environment of its place, which is checked again, and gives it that one's secrets.
func (h *Host) Follow(t *launch.Task, p rows.Place) error {
	stored, err := h.Runtimes.Stored(p.Environment.Recipe)
	if err != nil {
		return fmt.Errorf("environment %s: %w", p.Environment.ID, err)
	}
	t.Follow(stored)
	t.Secrets = func(ctx context.Context) (map[string]string, error) {
		if len(p.Environment.Bindings) == 0 {
			return nil, nil // no keys are needed
		}
		return h.Secrets(ctx, p.Environment.ID)
	}
	return nil
}

// Launcher returns what launches a task with a client of its thread. The place of a thread without a row is the zero
// one.
func (h *Host) Launcher(
	t launch.Task, p rows.Place, provider Provider, cl *client.Client, progress func(string),
) (*launch.Launcher, error) {
	agent, err := catalog.Lookup(t.Harness)
	if err != nil {
		return nil, err
	}
	if t.Live {
		agent = agent.ForLive()
	}
	l := h.boxer(p, provider, cl, progress)
	l.Agent = launch.Agent{Program: agent.Binary, Package: agent.Package}
	l.Tokens = runTokens(h.Key, p.House)
	l.StreamURL, err = h.StreamURL(provider.Name())
	return l, err
}

// boxer returns what gives a thread its box.
func (h *Host) boxer(
	p rows.Place, provider Provider, cl *client.Client, progress func(string),
) *launch.Launcher {
	others := func(id string) *client.Client { return Client(h.Key, cl, id) }
	l := &launch.Launcher{Provider: provider, Client: cl, Boxes: others, Runner: h.Runner, Progress: progress}
	if p.House != "" {
		l.Rows = &resolve.Resolver{Rows: h.Boxes, Provider: provider, Client: others, Progress: progress}
	}
	return l
}
