package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/thread"
)

func (p *program) hydrateCommand() *cli.Command {
	return &cli.Command{
		Name:  "hydrate",
		Usage: "rebuild the session of the thread's last run as a file",
		Description: `The file is the agent's own session, as it would be on the disk of the box that the thread was written from.
What the thread does not hold of it is said. Nothing is posted, and no agent is started:

  arbe-pi-runner hydrate --out session.jsonl && pi --session session.jsonl

` + envHelp,
		Flags: []cli.Flag{
			harnessFlag(),
			&cli.StringFlag{Name: "out", Usage: "the `FILE` to write: complete or not at all (required, but for --dry-run)", TakesFile: true},
			&cli.StringFlag{Name: "cwd", Usage: "the `FOLDER` where the agent is to go on (where it worked)", TakesFile: true},
			&cli.StringFlag{Name: "until", Usage: "stop after the entry with this `ID`"},
			&cli.StringFlag{Name: "format", Usage: "the `HARNESS` whose file is written, whichever wrote the thread: " + strings.Join(harness.Names(), ", ") + " (that of --harness)"},
			&cli.BoolFlag{Name: "dry-run", Usage: "say what would be rebuilt, and write nothing"},
			&cli.BoolFlag{Name: "json", Usage: "say it as one JSON object"},
			cmdline.Verbose(),
		},
		Action: p.hydrateAction,
	}
}

// errUntil ends a read at the entry that was asked for.
var errUntil = errors.New("this was the last one that is wanted")

func (p *program) hydrateAction(c *cli.Context) error {
	name := c.String("harness")
	if c.IsSet("format") {
		name = c.String("format")
	}
	spec, err := harness.Lookup(name)
	if err != nil {
		return &cmdline.Exit{Status: cmdline.StatusUsage, Cause: err}
	}
	out := c.String("out")
	if out == "" && !c.Bool("dry-run") || c.Args().Present() {
		return cmdline.Usage("want --out FILE or --dry-run, and no arguments; see arbe-pi-runner hydrate --help")
	}
	if c.Bool("dry-run") {
		out = ""
	}
	cwd := ""
	if c.IsSet("cwd") {
		if cwd, err = workDir(c.String("cwd")); err != nil {
			return err
		}
	}
	here, err := workDir("")
	if err != nil {
		return err
	}
	s, err := readSettings(p.getenv, p.environ, false)
	if err != nil {
		return err
	}
	ctx, _, stop := untilSignal(c.Context)
	defer stop()
	r := &hydrate.Rebuilder{Dialect: spec.Dialect, Cwd: cwd, DefaultCwd: here, TempDir: filepath.Dir(out)}
	if out == "" {
		r.TempDir = os.TempDir()
	}
	defer r.Close() // the file is written by then
	until, found := c.String("until"), false
	_, err = s.client(cmdline.Logger(p.stderr, c.Bool("verbose"))).Read(ctx, "0", false, func(e thread.Entry) error {
		if err := r.Add(hydrate.Parse(e, spec.Dialect)); err != nil {
			return err
		}
		if found = until != "" && e.ID == until; found {
			return errUntil
		}
		return nil
	})
	switch {
	case errors.Is(err, errUntil):
	case thread.Refused(err) || thread.Redirected(err):
		return &cmdline.Exit{Status: runner.StatusConfig, Cause: fmt.Errorf("read the thread: %w", err)}
	case thread.NotFound(err):
		return &cmdline.Exit{Status: runner.StatusNoSession, Cause: fmt.Errorf("thread %s was never written", s.thread)}
	case err != nil:
		return &cmdline.Exit{Status: exitUndelivered, Cause: fmt.Errorf("read the thread: %w", err)}
	case until != "" && !found:
		return cmdline.Usage("--until: the thread has no entry %s", until)
	}
	var done hydrate.Report
	if out == "" {
		done, err = r.Plan(runner.NewRunID(), time.Now())
	} else {
		done, err = r.Write(out, runner.NewRunID(), time.Now())
	}
	if errors.Is(err, hydrate.ErrNoSession) {
		return &cmdline.Exit{Status: runner.StatusNoSession, Cause: fmt.Errorf("thread %s: %w", s.thread, err)}
	}
	if err != nil {
		return err
	}
	if c.Bool("json") {
		enc := json.NewEncoder(p.stdout)
		enc.SetEscapeHTML(false)
		return enc.Encode(done)
	}
	p.told(out, done)
	return nil
}

// told says what a rebuilt session is.
func (p *program) told(out string, d hydrate.Report) {
	where := "would be"
	if out != "" {
		where = out
	}
	fmt.Fprintf(p.stdout, "%s: %d lines, %d bytes, session %s\n", where, d.Lines, d.Size, d.Session)
	say := func(n int, one, many string) {
		switch {
		case n == 1:
			fmt.Fprintf(p.stdout, "  1 %s\n", one)
		case n > 1:
			fmt.Fprintf(p.stdout, "  %d %s\n", n, many)
		}
	}
	say(d.Turns, "turn", "turns")
	say(d.Branches, "branch", "branches")
	say(d.Converted, "line made of an entry of another harness or mirror", "lines made of entries of another harness or mirror")
	for what, n := range d.Omitted {
		say(n, "turn without its "+what, "turns without their "+what)
	}
	say(d.Redacted, "line with a secret taken out", "lines with a secret taken out")
	say(d.Cut, "line with text cut out", "lines with text cut out")
	say(d.Unrelated, "chat on the thread that is no part of it", "chats on the thread that are no part of it")
	say(len(d.Lost), "line lost", "lines lost")
	for _, lost := range d.Lost {
		fmt.Fprintf(p.stdout, "    %s\n", lost)
	}
	if d.Cwd == d.OldCwd || d.OldCwd == "" {
		fmt.Fprintf(p.stdout, "  goes on in %s\n", d.Cwd)
	} else {
		fmt.Fprintf(p.stdout, "  goes on in %s (it was in %s)\n", d.Cwd, d.OldCwd)
	}
	fmt.Fprintf(p.stdout, "  after %s, entry %s\n", d.Leaf, d.Last)
}
