package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) reachCommand() *cli.Command {
	return &cli.Command{
		Name:  "reach",
		Usage: "ask whether this box reaches the thread server, and whether that takes the token",
		Description: `arbe launch and arbe exec do so in the box before they start anything there. Nothing is posted.

` + envHelp,
		Flags:  variableFlags(onThread...),
		Action: p.reachAction,
	}
}

func (p *program) reachAction(c *cli.Context) error {
	if c.Args().Present() {
		return cmdline.Usage("reach takes no arguments")
	}
	s, err := readSettings(p.getenv, p.environ, false)
	if err != nil {
		return err
	}
	cl := s.client(nil)
	if err = cl.Reach(c.Context); err == nil {
		return nil
	}
	status := runner.StatusNotStarted
	if client.Refused(err) || client.Redirected(err) || client.Gone(err) {
		status = runner.StatusConfig
	}
	return &cmdline.Exit{
		Status: status,
		Cause:  s.redact.Error(fmt.Errorf("can't use the thread server at %s: %w", cl.Address(), err)),
	}
}
