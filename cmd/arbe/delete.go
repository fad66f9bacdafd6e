package main

import (
	"cmp"
	"context"
	"net/http"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) deleteCommand() *cli.Command {
	return &cli.Command{
		Name:      "delete",
		Usage:     "delete a thread for ever; its id is not given again",
		ArgsUsage: "ID",
		Description: `A thread with an open run is refused. Deleting takes the secret, or a token of arbe token
mint --scope delete; the token of a run is refused, so no agent can delete its own thread. With --database
a delegated task that no host has launched yet ends first: it never runs.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{
				Name:  "force",
				Usage: "delete it even if a run is open; entries that its runner posts later are refused",
			},
			databaseFlag(),
		},
		Action: p.deleteAction,
	}
}

func (p *program) deleteAction(c *cli.Context) error {
	cmd := p.command(c)
	id, err := cmd.oneToChange(c.Context)
	if err != nil {
		return err
	}
	cl, err := cmd.client(id, token.ScopeRead)
	if err != nil {
		return err
	}
	fold, _, unread := readRuns(c.Context, cl, "signal.")
	if unread != nil && !client.NoThread(unread) {
		return reachThread(cl, unread)
	}
	for _, r := range fold.Runs() {
		if r.Status == thread.StatusRunning && !c.Bool("force") {
			return cmdline.Fail(1, "run %s of thread %s is still running: cancel it first, or use --force", r.ID, id)
		}
	}
	if len(fold.Runs()) == 0 {
		if ended, err := cmd.withdrawToDelete(c.Context, id); err != nil || !ended && unread != nil {
			return cmp.Or(err, reachThread(cl, unread))
		}
	}
	d, url, err := cmd.server()
	if err != nil {
		return err
	}
	tokens, err := tokensFor(d, url, thread.StreamName(id), token.ScopeDelete)
	if err != nil {
		return err
	}
	token, err := tokens()
	if err != nil {
		return err
	}
	body, err := ask(c.Context, http.MethodDelete, url, "/v1/stream/"+thread.StreamName(id), token, nil)
	if err != nil {
		return reachThread(cl, err)
	}
	host{data: d}.forget(id)
	return body.Close()
}

// withdrawToDelete ends the task of a thread that waits for a host to launch it; false for no such task. One that a
// host has is refused.
func (c command) withdrawToDelete(ctx context.Context, id string) (ended bool, err error) {
	h, err := c.host()
	if err != nil {
		return false, err
	}
	task, waits, err := h.queued(ctx, id)
	if err != nil || !waits {
		return false, databaseExit(err)
	}
	if ended, err = h.cancelTask(ctx, task, c.author, "its thread is deleted"); err == nil && !ended {
		err = cmdline.Fail(1,
			"a host launches the task of thread %s, and was asked to end it: delete the thread once it has ended", id)
	}
	return ended, err
}
