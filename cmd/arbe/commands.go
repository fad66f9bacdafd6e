package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server/houses"
	"arbe.0sk.ar/runner/thread/client"
)

// mostStarts bounds the commands that a server starts at the same time. Those that run are in their boxes.
const mostStarts = 64

// commander runs commands for the callers of a server: a houses.Commands.
type commander struct {
	host   host
	to     *provision.Host
	starts *exec.Group
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
	cl, err := m.host.client(c.Thread)
	if err != nil {
		return false, err
	}
	x, err := m.prepare(ctx, cl, &r, c.Environment)
	if err != nil {
		return false, commandError(err)
	}
	if err := m.to.Remember(c.Thread); err != nil {
		return false, err
	}
	posted, err := x.Post(ctx, r)
	if err != nil || posted.Again {
		return false, commandError(err)
	}
	started = true
	start(func(ctx context.Context) {
		if _, err := x.Fire(ctx, posted); err != nil {
			m.to.Log.Info("command not started", "thread", r.Thread, "exec", r.ID, "reason", err)
		}
	})
	return true, nil
}

// prepare returns what runs a command in the box of its thread. It refuses what is known not to work.
func (m *commander) prepare(
	ctx context.Context, cl *client.Client, r *exec.Request, typed string,
) (*exec.Host, error) {
	environment, err := m.host.environmentFor(ctx, r.Thread, typed)
	if err != nil {
		return nil, err
	}
	x, rowed, err := m.to.Command(ctx, cl, r, environment, nil)
	switch {
	case err != nil || rowed:
		return x, err
	case typed != "":
		return nil, &exec.BadRequestError{Why: "environment: the thread is of no house"}
	}
	return x, m.to.Reaches(ctx, cl)
}

// Cancel implements houses.Commands.
func (m *commander) Cancel(ctx context.Context, threadID, execID, author string) error {
	cl, err := m.host.client(threadID)
	if err != nil {
		return err
	}
	return commandError(exec.Cancel(ctx, cl, execID, author, ""))
}

// commandError makes an error the answer to the caller of a command.
func commandError(err error) error {
	refuse := func(why houses.CommandFault) error { return houses.RefuseCommand(why, err.Error()) }
	none, _ := errors.AsType[*exec.NoCommandError](err)
	answer, _ := errors.AsType[*client.StatusError](err)
	switch {
	case err == nil:
		return nil
	case rows.IsUnserved(err):
		return fmt.Errorf("%w: %w", member.ErrRows, err)
	case errors.Is(err, provision.ErrLocal):
		const text = "this server runs no commands in local boxes: start it with --local-boxes"
		return houses.RefuseCommand(houses.CommandLocal, text)
	case errors.As(err, new(*provision.UnreachableError)):
		return houses.RefuseCommand(houses.CommandNoProvider, "this server can't reach the thread's box: "+err.Error())
	case errors.As(err, new(*exec.BadRequestError)):
		return refuse(houses.CommandBad)
	case errors.As(err, new(*exec.NoBoxError)):
		return refuse(houses.CommandNoBox)
	case none != nil && none.Ended:
		return refuse(houses.CommandEnded)
	case none != nil, client.NotFound(err):
		return refuse(houses.CommandAbsent)
	case answer != nil && answer.Status == http.StatusConflict:
		return houses.RefuseCommand(houses.CommandTaken, "the id is another command's")
	case errors.Is(err, exec.ErrFull), errors.Is(err, exec.ErrEnding):
		return refuse(houses.CommandBusy)
	case errors.Is(err, rows.ErrNoRecipe):
		const text = "neither the thread nor its house has an environment: name one"
		return houses.RefuseCommand(houses.CommandBad, text)
	case errors.As(err, new(*cmdline.Exit)), errors.As(err, new(*recipe.Error)), errors.Is(err, rows.ErrArchived):
		return refuse(houses.CommandBad) // of what the caller has named
	}
	return err
}
