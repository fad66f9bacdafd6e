package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

func (p *program) decideCommand() *cli.Command {
	return &cli.Command{
		Name:  "decide",
		Usage: "print the verdict of a run, from its session file and how its process ended",
		Description: `Prints one JSON object. Reads the named files only, and posts nothing.
With neither --exit-code nor --signal it is not known how the process ended.

  arbe-pi-runner decide --harness pi --session session.jsonl --exit-code 0`,
		Flags: []cli.Flag{
			harnessFlag(),
			&cli.StringFlag{
				Name: "session", Usage: "read the session `FILE` (required); a missing file has no lines",
			},
			&cli.IntFlag{
				Name: "from", Value: -1, DefaultText: "the last prompt",
				Usage: "begin at the run's first `LINE`, an index from 0",
			},
			&cli.StringFlag{
				Name:  "stdout",
				Usage: "read the agent's stdout from `FILE`; codex and claude-code report there how the turn ended",
			},
			&cli.StringFlag{
				Name:  "stderr",
				Usage: "read the agent's stderr from `FILE`; its line with the error goes into the message",
			},
			&cli.IntFlag{Name: "exit-code", Usage: "the process ended with `STATUS`, 0 to 255"},
			&cli.StringFlag{Name: "signal", Usage: "the process died of `SIGNAL`, a name or number"},
		},
		Action: p.decideAction,
	}
}

func (p *program) decideAction(c *cli.Context) error {
	spec, err := harness.Lookup(c.String("harness"))
	if err != nil {
		return &cmdline.Exit{Status: cmdline.StatusUsage, Cause: err}
	}
	if c.String("session") == "" || c.Args().Present() {
		return cmdline.Usage("want --session FILE and no arguments; see arbe-pi-runner decide --help")
	}
	ended, err := exitFrom(c)
	if err != nil {
		return err
	}
	tally, err := lastTurn(c.String("session"), spec.Dialect, c.Int("from"), c.IsSet("from"))
	if err != nil {
		return err
	}
	stderr, err := readMaybe(c.String("stderr"))
	if err != nil {
		return err
	}
	if err := addStdout(&tally, c.String("stdout"), spec); err != nil {
		return err
	}
	v := outcome.Decide(outcome.Facts{Turn: tally.Turn(), Exit: ended, Stderr: stderr, Node: spec.Node})
	enc := json.NewEncoder(p.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// exitFrom returns how the process ended, from the flags.
func exitFrom(c *cli.Context) (outcome.Exit, error) {
	code, sig := c.Int("exit-code"), c.String("signal")
	switch {
	case c.IsSet("exit-code") && c.IsSet("signal"):
		return outcome.Exit{}, cmdline.Usage("--exit-code and --signal exclude each other")
	case c.IsSet("exit-code"):
		if code < 0 || code > 255 {
			return outcome.Exit{}, cmdline.Usage("--exit-code %d: want 0 to 255", code)
		}
		return outcome.ExitCode(code), nil
	case c.IsSet("signal"):
		n, err := outcome.ParseSignal(sig)
		if err != nil {
			return outcome.Exit{}, cmdline.Usage("--signal: %w", err)
		}
		return outcome.Signalled(n), nil
	}
	return outcome.Exit{}, nil
}

// lastTurn tallies the lines of the run that begins at line from; without --from, at the last prompt that is not
// injected.
func lastTurn(path string, d session.Dialect, from int, given bool) (tally harness.Tally, err error) {
	if given && from < 0 {
		return tally, cmdline.Usage("--from %d: want the index of a line, from 0", from)
	}
	decoder := session.Decoder{Dialect: d}
	err = lines(path, func(line session.Line) {
		e := decoder.Next(line.Data)
		switch {
		case given && line.Start.Index < from:
			return
		case !given && e.Mark == session.Prompt:
			tally = harness.Tally{} // a later prompt begins a later run
		}
		tally.Add(e)
	})
	return tally, err
}

// addStdout adds the records in the agent's stdout.
func addStdout(tally *harness.Tally, path string, spec harness.Spec) error {
	if path == "" || spec.Report == nil {
		return nil
	}
	tally.OnStdout = spec.EndsOnStdout
	return lines(path, func(line session.Line) { tally.AddReport(spec.Report(line.Data)) })
}

// lines calls f for the lines of a file. A missing file has none.
func lines(path string, f func(session.Line)) error {
	for line, err := range session.Lines(path, session.Position{}) {
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		f(line)
	}
	return nil
}

// readMaybe reads a file; a missing one is empty.
func readMaybe(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(b), err
}
