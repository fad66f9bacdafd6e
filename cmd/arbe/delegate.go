package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/rows"
)

func (p *program) delegateCommand() *cli.Command {
	return &cli.Command{
		Name:      "delegate",
		Usage:     "delegate a task from a thread of a house to a thread of its own, and print that one's id",
		ArgsUsage: "ID -- TASK",
		Description: `The task waits for arbe provision, or arbe serve --provision. It gets a box of its own, by the
environment of --environment, of the thread or of its house; --in shares a box that there is. Its
result comes to the thread.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "environment", Usage: "`NAME` or id of the environment of the box"},
			&cli.StringFlag{
				Name:  "in",
				Usage: "work in the `SANDBOX` of the house with this id; parent stands for the thread's own",
			},
			&cli.StringFlag{Name: "repo", Usage: "clone `ORG/REPO` and work there"},
			&cli.StringFlag{Name: "branch", Usage: "work on `BRANCH` of --repo"},
			&cli.BoolFlag{Name: "push", Usage: "push --branch to --repo after a completed run"},
			&cli.BoolFlag{Name: "pr", Usage: "push, and open a pull request"},
			&cli.StringFlag{
				Name: "agent", Usage: "`NAME` or id of the bot (default: the house's oldest one of the harness)",
			},
			&cli.StringFlag{
				Name: "harness",
				Usage: "run the agent `HARNESS`: " + strings.Join(catalog.Names(), ", ") +
					" (default: the bot's, or pi)",
			},
			&cli.StringFlag{Name: "model", Usage: "`MODEL` for the agent, as the agent names it"},
			&cli.BoolFlag{Name: "live", Usage: "let the agent take chats while it runs; see arbe say"},
			&cli.StringFlag{Name: "author", EnvVars: []string{"ARBE_AUTHOR_ID"}, Usage: "`AUTHOR` of the task"},
			databaseFlag(),
		},
		Action: p.delegateAction,
	}
}

// announceTimeout bounds the announcement of a task, which a provisioner repeats.
const announceTimeout = 5 * time.Second

// delegatedTask reads the task of a delegation's command line.
func delegatedTask(c *cli.Context) (rows.Task, error) {
	d := rows.Task{
		Prompt: strings.Join(c.Args().Tail(), " "), Author: c.String("author"), Agent: c.String("agent"),
		Harness: c.String("harness"), Model: c.String("model"), Live: c.Bool("live"),
		Environment: c.String("environment"), Sandbox: c.String("in"), Repo: c.String("repo"),
		Branch: c.String("branch"), Push: c.Bool("push") || c.Bool("pr"), PR: c.Bool("pr"), Trusted: true,
	}
	switch {
	case c.NArg() < 2 || strings.TrimSpace(d.Prompt) == "":
		return d, cmdline.Usage("want a thread id, and a TASK after --")
	case d.Sandbox != "" && (d.Environment != "" || d.Repo != ""):
		return d, cmdline.Usage("--in excludes --environment and --repo: a box that is shared has its own")
	case d.Branch != "" && d.Repo == "":
		return d, cmdline.Usage("--branch needs --repo")
	case d.Push && d.Branch == "":
		return d, cmdline.Usage("--push and --pr need --repo and --branch")
	}
	if err := provision.CheckHarness(&d); err != nil {
		return d, cmdline.Usage("%w", err)
	}
	return d, nil
}

func (p *program) delegateAction(c *cli.Context) error {
	d, err := delegatedTask(c)
	if err != nil {
		return err
	}
	cmd := p.command(c)
	if d.Parent, err = cmd.toChange(c.Context, cmd.first()); err != nil {
		return err
	}
	h, err := cmd.host()
	if err != nil {
		return err
	}
	if h.database == nil {
		return errNoDatabase()
	}
	client, err := h.client(d.Parent)
	if err != nil {
		return err
	}
	db, err := h.database(c.Context)
	if err != nil {
		return databaseExit(err)
	}
	defer db.Close()
	if err := findNamed(c.Context, db.Host(), &d); err != nil {
		return databaseExit(err)
	}
	o, _, err := db.Host().Delegate(c.Context, d)
	if err != nil {
		return databaseExit(err)
	}
	ctx, cancel := context.WithTimeout(c.Context, announceTimeout)
	defer cancel()
	client.Log = nil
	if err := provision.Announce(ctx, client, o); err != nil {
		fmt.Fprintf(p.stderr, "arbe: the task is not on thread %s yet; its provisioner posts it: %v\n", d.Parent, err)
	}
	p.printHeld(c.Context, db.Host(), o.Thread)
	fmt.Fprintln(p.stdout, o.Thread)
	return nil
}

// printHeld prints that a task waits for its house, where it does.
func (p *program) printHeld(ctx context.Context, s control.Scope, thread string) {
	held, is, err := s.HeldTask(ctx, thread)
	switch {
	case err != nil:
		fmt.Fprintf(p.stderr, "arbe: whether the task waits for its house is not known: %v\n", err)
	case is:
		fmt.Fprintf(p.stderr, "arbe: %s: the task waits\n", held.Reason())
	}
}

// findNamed finds the environment and the bot that a person means.
func findNamed(ctx context.Context, s control.Scope, d *rows.Task) error {
	if d.Agent != "" {
		a, err := findAgent(ctx, s, d.Agent)
		if err != nil {
			return err
		}
		d.Agent = a.ID
	}
	if d.Environment == "" {
		return nil
	}
	var err error
	d.Environment, err = environmentOf(ctx, s, d.Parent, d.Environment)
	return err
}
