package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/server/houses"
	"arbe.0sk.ar/runner/thread"
)

// mostStarts bounds the commands that a server starts at the same time. Those that run are in their boxes.
const mostStarts = 64

// commander runs commands for the callers of a server: a houses.Commands.
type commander struct {
	host   host
	cli    *cli.Context
	key    []byte // signs tokens
	starts *exec.Group
	logger *slog.Logger
}

// commanding returns what runs commands; starts has those that are being started.
func (p *program) commanding(
	c *cli.Context, d daemon.Data, cfg daemon.Config, s daemon.Serving, starts *exec.Group,
) houses.Commands {
	h, _ := p.beside(limitsOf(c), d, cfg, s)
	return &commander{host: h, cli: c, key: s.Secret, starts: starts, logger: cfg.Logger}
}

// Start implements houses.Commands.
func (m *commander) Start(ctx context.Context, c houses.Command) (fresh bool, err error) {
	r := exec.Request{
		Thread: c.Thread, ID: c.ID, Author: c.Author, Argv: c.Argv, Shown: c.Shown, Cwd: c.Cwd, Timeout: c.Timeout,
	}
	if err := r.Check(); err != nil {
		return false, commandError(err)
	}
	start, free, err := m.starts.Reserve()
	if err != nil {
		return false, commandError(err)
	}
	started := false
	defer func() {
		if !started {
			free()
		}
	}()
	client, err := m.host.client(c.Thread)
	if err != nil {
		return false, err
	}
	x := m.host.commands(client, m.key)
	if err := m.prepare(ctx, x, &r, c.Environment); err != nil {
		return false, commandError(err)
	}
	if err := remember(m.host.data, c.Thread); err != nil {
		return false, err
	}
	posted, err := x.Post(ctx, r)
	if err != nil || posted.Again {
		return false, commandError(err)
	}
	started = true
	start(func(ctx context.Context) {
		if _, err := x.Fire(ctx, posted); err != nil {
			m.logger.Info("command not started", "thread", r.Thread, "exec", r.ID, "reason", err)
		}
	})
	return true, nil
}

// prepare lets a command run in the box of its thread. It refuses what is known not to work.
func (m *commander) prepare(ctx context.Context, x *exec.Host, r *exec.Request, environment string) error {
	c := *m.cli
	c.Context = ctx
	row, err := m.host.rowOfExec(&c, r.Thread, environment)
	if err != nil {
		return err
	}
	if row != nil {
		if err := m.reaches(ctx, row.provider, ""); err != nil {
			return err
		}
		return m.host.byRow(&c, row, x, r, m.key)
	}
	if environment != "" {
		return &exec.BadRequestError{Why: "environment: the thread is of no house"}
	}
	ref, err := m.host.boxes(x.Client, x.Lease).Named(ctx)
	if err != nil {
		return err
	}
	return m.reaches(ctx, ref.Provider, ref.ID)
}

// reaches returns an error where this server does not use boxes of a provider; box is "" for a new one.
func (m *commander) reaches(ctx context.Context, provider, box string) error {
	if provider == sandbox.LocalName && !m.cli.Bool("local-boxes") {
		const text = "this server runs no commands in local boxes: start it with --local-boxes"
		return houses.RefuseCommand(houses.CommandLocal, text)
	}
	p, err := providerNamed(m.host.data, "the provider of the thread's box", provider)
	if err == nil && provider == sandbox.LocalName && box != "" {
		if _, _, err = p.Probe(ctx, box); !errors.Is(err, sandbox.ErrForeign) {
			err = nil // the start finds out
		}
	}
	if err != nil {
		return houses.RefuseCommand(houses.CommandNoProvider, "this server can't reach the thread's box: "+err.Error())
	}
	return nil
}

// Cancel implements houses.Commands.
func (m *commander) Cancel(ctx context.Context, threadID, execID, author string) error {
	client, err := m.host.client(threadID)
	if err != nil {
		return err
	}
	return commandError(exec.Cancel(ctx, client, execID, author, ""))
}

// commandError makes an error the answer to the caller of a command.
func commandError(err error) error {
	refuse := func(why houses.CommandFault) error { return houses.RefuseCommand(why, err.Error()) }
	var bad *exec.BadRequestError
	var noBox *exec.NoBoxError
	var none *exec.NoCommandError
	var se *thread.StatusError
	var exit *cmdline.Exit
	switch {
	case err == nil:
		return nil
	case rows.IsAway(err), errors.Is(err, rows.ErrOtherLog):
		return fmt.Errorf("%w: %w", member.ErrRows, err)
	case errors.As(err, &bad):
		return refuse(houses.CommandBad)
	case errors.As(err, &noBox):
		return refuse(houses.CommandNoBox)
	case errors.As(err, &none) && none.Ended:
		return refuse(houses.CommandEnded)
	case errors.As(err, &none), thread.NotFound(err):
		return refuse(houses.CommandAbsent)
	case errors.As(err, &se) && se.Status == http.StatusConflict:
		return houses.RefuseCommand(houses.CommandTaken, "the id is another command's")
	case errors.Is(err, exec.ErrFull), errors.Is(err, exec.ErrEnding):
		return refuse(houses.CommandBusy)
	case errors.Is(err, rows.ErrNoRecipe):
		const text = "neither the thread nor its house has an environment: name one"
		return houses.RefuseCommand(houses.CommandBad, text)
	case errors.As(err, &exit), errors.Is(err, rows.ErrArchived):
		return refuse(houses.CommandBad) // of what the caller has named
	}
	return err
}
