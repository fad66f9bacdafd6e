package main

import (
	"fmt"
	"log/slog"

	"github.com/urfave/cli/v2"

	arbe "arbe.0sk.ar/runner"
	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) recoverCommand() *cli.Command {
	return &cli.Command{
		Name:  "recover",
		Usage: "finish the thread's runs that a dead runner left on this machine",
		Description: `Ends an agent that still runs, posts the remaining lines of its session, and posts the end of the run.
A run whose runner lives is left alone; arbe-pi-runner status shows which are lost.

` + envHelp,
		Flags:  append(variableFlags(append(onThread, "state-dir")...), cmdline.Verbose(), cmdline.LogFormat()),
		Action: p.recoverAction,
	}
}

func (p *program) recoverAction(c *cli.Context) error {
	if c.Args().Present() {
		return cmdline.Usage("recover takes no arguments")
	}
	if err := cmdline.CheckLogFormat(c); err != nil {
		return err
	}
	s, err := readSettings(p.getenv, p.environ, false)
	if err != nil {
		return err
	}
	byHand := p.atTerminal()
	log := p.log(c, p.stderr, byHand)
	ctx, _, stop := untilSignal(c.Context, slog.New(slog.DiscardHandler))
	defer stop()
	n := 0
	err = runner.Recover(ctx, runner.Config{
		ThreadID: s.thread, Author: s.author, State: s.state, Client: s.client(log), Redact: s.redact,
		Version: arbe.This().String(),
		Environ: p.environ, Log: log.With("thread", s.thread), ByHand: byHand, Stdout: p.stdout, Stderr: p.stderr,
	}, func(k runfolder.Known, v outcome.Verdict) {
		n++
		word := v.Outcome
		if word == outcome.Orphaned { // for people it has failed
			word = outcome.Failed
		}
		fmt.Fprintf(p.stdout, "run %s: %s\n", k.Run, word)
	})
	switch {
	case client.Refused(err) || client.Gone(err):
		return &cmdline.Exit{Status: runner.StatusConfig, Cause: err}
	case err != nil:
		return &cmdline.Exit{Status: exitUndelivered, Cause: err}
	case n == 0:
		fmt.Fprintf(p.stdout, "no run of thread %s is lost\n", s.thread)
	}
	return nil
}
