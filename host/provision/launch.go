package provision

import (
	"context"

	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// Options are what each box gets of this host's environment, but for the operator's token.
func (e Environ) Options() sandbox.Options {
	return sandbox.Options{Target: e.Target, GitHub: e.GitHub}
}

// Follow makes a task's box by the environment of its place, which is checked again, and gives it that one's secrets.
func (h *Host) Follow(t *launch.Task, p rows.Place) error {
	stored, err := recipe.Stored(p.Environment.Recipe)
	if err != nil {
		return &RecipeError{p.Environment.ID, err}
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
	t launch.Task, p rows.Place, provider Provider, client *thread.Client, progress func(string),
) (*launch.Launcher, error) {
	agent, err := catalog.Lookup(t.Harness)
	if err != nil {
		return nil, err
	}
	if t.Live {
		agent = agent.ForLive()
	}
	l := h.boxer(p, provider, client, progress)
	l.Agent = launch.Agent{Program: agent.Binary, Package: agent.Package}
	l.Tokens = runTokens(h.Key, p.House)
	l.StreamURL, err = h.StreamURL(provider.Name())
	return l, err
}

// boxer returns what gives a thread its box.
func (h *Host) boxer(
	p rows.Place, provider Provider, client *thread.Client, progress func(string),
) *launch.Launcher {
	others := func(id string) *thread.Client { return Client(h.Key, client, id) }
	l := &launch.Launcher{Provider: provider, Client: client, Boxes: others, Runner: h.Runner, Progress: progress}
	if p.House != "" {
		l.Rows = &resolve.Resolver{Rows: h.Boxes, Provider: provider, Client: others, Progress: progress}
	}
	return l
}
