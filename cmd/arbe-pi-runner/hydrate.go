package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) hydrateCommand() *cli.Command {
	return &cli.Command{
		Name:  "hydrate",
		Usage: "rebuild the session of the thread's last run as a file",
		Description: `The file is the session of the agent that --harness names, whichever agent wrote the thread. What the
thread does not hold of it is reported. Nothing is posted, and no agent is started:

  arbe-pi-runner hydrate --out session.jsonl && pi --session session.jsonl

Environment:
  ARBE_STREAM_TOKEN  a token that may read the thread; required without a token file`,
		Flags: append([]cli.Flag{
			harnessFlag(),
			&cli.StringFlag{
				Name:  "out",
				Usage: "write `FILE`, whole or not at all, - for stdout (required without --dry-run)",
			},
			&cli.BoolFlag{Name: "force", Usage: "replace a FILE that exists"},
			&cli.StringFlag{
				Name:  "cwd",
				Usage: "let the agent continue in `FOLDER` (default: where it worked)",
			},
			&cli.StringFlag{Name: "until", Usage: "stop after the entry with the id `ENTRY`"},
			&cli.BoolFlag{Name: "dry-run", Usage: "report the rebuild without writing a file"},
			&cli.BoolFlag{Name: "json", Usage: "print the report as one JSON object"},
			cmdline.Verbose(),
			cmdline.LogFormat(),
		}, variableFlags(onThread...)...),
		Action: p.hydrateAction,
	}
}

func (p *program) hydrateAction(c *cli.Context) error {
	spec, err := harness.Lookup(c.String("harness"))
	if err != nil {
		return &cmdline.Exit{Status: cmdline.StatusUsage, Cause: err}
	}
	if err := cmdline.CheckLogFormat(c); err != nil {
		return err
	}
	out := c.String("out")
	if out == "" && !c.Bool("dry-run") || c.Args().Present() {
		return cmdline.Usage("want --out FILE or --dry-run, and no arguments; see arbe-pi-runner hydrate --help")
	}
	if c.Bool("dry-run") {
		out = ""
	}
	r := &hydrate.Rebuilder{Dialect: spec.Dialect, TempDir: os.TempDir(), Amend: true}
	if out != "" && out != stdoutFile {
		if err := free(out, c.Bool("force")); err != nil {
			return err
		}
		r.TempDir = filepath.Dir(out)
	}
	if r.DefaultCwd, err = workDir(""); err != nil {
		return err
	}
	if c.IsSet("cwd") {
		if r.Cwd, err = workDir(c.String("cwd")); err != nil {
			return err
		}
	}
	s, err := readSettings(p.getenv, p.environ, false)
	if err != nil {
		return err
	}
	ctx, _, stop := untilSignal(c.Context, slog.New(slog.DiscardHandler))
	defer stop()
	defer r.Close() // its files are temporary
	cl := s.client(p.log(c, p.stderr, p.atTerminal()))
	if err := readInto(ctx, cl, r, s.thread, c.String("until")); err != nil {
		return err
	}
	report, err := p.rebuild(r, out)
	if errors.Is(err, hydrate.ErrNoSession) {
		return &cmdline.Exit{Status: runner.StatusNoSession, Cause: fmt.Errorf("thread %s: %w", s.thread, err)}
	}
	if err != nil {
		return err
	}
	w := p.stdout
	if out == stdoutFile { // which has the session
		w = p.stderr
	}
	if c.Bool("json") {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return enc.Encode(report)
	}
	printReport(w, out, report)
	return nil
}

// stdoutFile is the value of --out for stdout.
const stdoutFile = "-"

// free reports whether --out may create the file, or replace it.
func free(path string, replace bool) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return cmdline.Usage("--out: %w", err)
	case !st.Mode().IsRegular():
		return cmdline.Usage("--out %s is not a regular file; --out - writes to stdout", path)
	case !replace:
		return cmdline.Usage("--out %s exists; --force replaces it", path)
	}
	return nil
}

// errUntil ends a read after the entry of --until.
var errUntil = errors.New("the last wanted entry")

// readInto adds the thread's entries to the Rebuilder, up to the one with the id until; "" for all.
func readInto(ctx context.Context, cl *client.Client, r *hydrate.Rebuilder, threadID, until string) error {
	_, err := cl.Read(ctx, "0", false, func(e thread.Entry) error {
		if err := r.Add(hydrate.Parse(e, r.Dialect)); err != nil {
			return err
		}
		if until != "" && e.ID == until {
			return errUntil
		}
		return nil
	})
	switch {
	case errors.Is(err, errUntil):
		return nil
	case client.Refused(err) || client.Redirected(err) || client.Gone(err):
		return &cmdline.Exit{Status: runner.StatusConfig, Cause: fmt.Errorf("read the thread: %w", err)}
	case client.NotFound(err):
		return &cmdline.Exit{Status: runner.StatusNoSession, Cause: fmt.Errorf("thread %s was never written", threadID)}
	case err != nil:
		return &cmdline.Exit{Status: exitUndelivered, Cause: fmt.Errorf("read the thread: %w", err)}
	case until != "":
		return cmdline.Usage("--until: the thread has no entry %s", until)
	}
	return nil
}

// rebuild writes the session to the file out, or only plans it where out is "".
func (p *program) rebuild(r *hydrate.Rebuilder, out string) (hydrate.Report, error) {
	switch out {
	case "":
		return r.Plan(runner.NewID(), time.Now())
	case stdoutFile:
		return r.Copy(p.stdout, runner.NewID(), time.Now())
	}
	return r.Write(out, runner.NewID(), time.Now())
}

// printReport prints what was rebuilt to the file out; "" for a dry run.
func printReport(w io.Writer, out string, d hydrate.Report) {
	switch out {
	case "":
		out = "not written"
	case stdoutFile:
		out = "stdout"
	}
	fmt.Fprintf(w, "%s: %d lines, %d bytes, session %s\n", out, d.Lines, d.Size, d.Session)
	count := func(n int, one, many string) {
		switch {
		case n == 1:
			fmt.Fprintf(w, "  1 %s\n", one)
		case n > 1:
			fmt.Fprintf(w, "  %d %s\n", n, many)
		}
	}
	count(d.Turns, "turn", "turns")
	count(d.Branches, "branch", "branches")
	count(d.Converted, "line converted from another harness or mirror",
		"lines converted from another harness or mirror")
	for _, part := range slices.Sorted(maps.Keys(d.Omitted)) {
		count(d.Omitted[part], "turn without its "+part, "turns without their "+part)
	}
	if d.Amended {
		fmt.Fprintln(w, "  1 line added, so that the agent continues from the newest turn")
	}
	count(d.Redacted, "line with a redacted secret", "lines with a redacted secret")
	count(d.Cut, "line with cut text", "lines with cut text")
	count(d.Unrelated, "chat that is no part of the session", "chats that are no part of the session")
	count(len(d.Lost), "line lost", "lines lost")
	for _, lost := range d.Lost {
		fmt.Fprintf(w, "    %s\n", lost)
	}
	if d.Cwd == d.OldCwd || d.OldCwd == "" {
		fmt.Fprintf(w, "  continues in %s\n", d.Cwd)
	} else {
		fmt.Fprintf(w, "  continues in %s (was in %s)\n", d.Cwd, d.OldCwd)
	}
	fmt.Fprintf(w, "  after line %s, entry %s\n", d.Leaf, d.Last)
}
