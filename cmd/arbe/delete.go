package main

import (
	"fmt"
	"net/http"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

func (p *program) deleteCommand() *cli.Command {
	return &cli.Command{
		Name:      "delete",
		Usage:     "delete a thread for ever; its id is not given again",
		ArgsUsage: "ID",
		Description: `A thread with an open run is refused. Deleting takes the secret, or a token of arbe token
mint --scope delete; the token of a run is refused, so no agent can delete its own thread.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{
				Name:  "force",
				Usage: "delete it even if a run is open; entries that its runner posts later are refused",
			},
		},
		Action: p.deleteAction,
	}
}

func (p *program) deleteAction(c *cli.Context) error {
	id, err := p.oneToChange(c)
	if err != nil {
		return err
	}
	client, err := p.client(c, id, token.ScopeRead)
	if err != nil {
		return err
	}
	if !c.Bool("force") {
		var fold thread.Fold
		add := func(e thread.Entry) error { fold.Add(e); return nil }
		if _, err = client.Only("signal.").Read(c.Context, "0", false, add); err != nil {
			return reachThread(client, err)
		}
		for _, r := range fold.Runs() {
			if r.Status == thread.StatusRunning {
				return &cmdline.Exit{
					Status: 1,
					Cause: fmt.Errorf(
						"run %s of thread %s is still running: cancel it first, or use --force",
						r.ID,
						id,
					),
				}
			}
		}
	}
	d, err := data(c)
	if err != nil {
		return err
	}
	url, err := serverURL(d)
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
	body, err := ask(c.Context, http.MethodDelete, url, "/v1/stream/"+thread.StreamName(id), token)
	if err != nil {
		return reachThread(client, err)
	}
	host{data: d}.forget(id)
	return body.Close()
}
