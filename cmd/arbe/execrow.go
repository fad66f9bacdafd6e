package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// rowOfExec returns the row of a thread for a command, with its box's environment and provider; nil without a database,
// and for a thread without a row. environment is the name or the id of that of a new box; "" for the thread's own.
func (h host) rowOfExec(c *cli.Context, id, environment string) (*launchRow, error) {
	if h.database == nil {
		return nil, nil
	}
	db, err := h.database(c.Context)
	if err != nil {
		return nil, err
	}
	r := &launchRow{db: db}
	r.thread, err = db.Host().Thread(c.Context, id)
	if errors.Is(err, rows.ErrAbsent) {
		return nil, nil
	}
	if err == nil && environment != "" {
		var e rows.Environment
		e, err = findEnvironment(c.Context, db.Host(), r.thread.House, environment)
		r.asked.environment = e.ID
	}
	if err == nil {
		err = r.box(c)
	}
	if err != nil {
		return nil, fmt.Errorf("the rows of thread %s: %w", id, err)
	}
	return r, nil
}

// byRow lets a command run in the box of a thread's row, with the secrets of the box's environment as variables. A
// secret that is missing ends the command on the thread.
func (h host) byRow(c *cli.Context, row *launchRow, x *exec.Host, r *exec.Request, key []byte) error {
	provider, err := providerNamed(h.data, "the environment's runtime", row.provider)
	if err != nil {
		return err
	}
	t := launch.Task{
		Thread: r.Thread, Exec: r.ID, Author: r.Author, Environment: row.asked.environment,
		Box: sandbox.Options{Target: os.Getenv("DAYTONA_TARGET")},
	}
	if err := row.follow(c.Context, &t); err != nil {
		return err
	}
	x.Tokens = execTokens(key, row.thread.House)
	secrets, missing := launchSecrets(c, row.db, row.environment)(c.Context)
	t.Secrets = func(context.Context) (map[string]string, error) { return secrets, missing }
	env := maps.Clone(secrets)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, r.Env)
	r.Env, r.Secrets = env, slices.Sorted(maps.Keys(secrets))
	t.Env = r.Env
	clients := func(id string) *thread.Client {
		one, _ := h.client(id) // never fails
		return one
	}
	progress := func(step string) {
		if x.Progress != nil {
			x.Progress(step)
		}
	}
	x.Box = exec.Rowed{Task: t, Launcher: &launch.Launcher{
		Provider: provider, Client: x.Client, Boxes: clients, Runner: runnerFor,
		Rows: h.resolver(provider, clients, progress), Progress: progress,
	}}.Box
	return nil
}
