package main

import (
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
		run, ended, err := cmd.cancelTask(c.Context, id, "", "its thread is deleted")
		switch {
		case err != nil:
			return err
		case run != "" && !ended:
			const text = "a host launches the task of thread %s, and was asked to end it: " +
				"delete the thread once it has ended"
			return cmdline.Fail(1, text, id)
		case run == "" && unread != nil:
			return reachThread(cl, unread)
		}
	}
	deleting, err := cmd.client(id, token.ScopeDelete)
	if err != nil {
		return err
	}
	body, err := ask(c.Context, deleting, http.MethodDelete, "/v1/stream/"+thread.StreamName(id), nil)
	if err != nil {
		return reachThread(cl, err)
	}
	d, _ := cmd.data() // the client has read it
	host{data: d}.forget(id)
	return body.Close()
}
