package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/command"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// execName is the name of a supervisor's process. It is not the runner's, by which a host finds out whether a run's
// runner lives.
const execName = "arbe-exec"

func (p *program) execCommand() *cli.Command {
	return &cli.Command{
		Name:      "exec",
		Usage:     "run one command, and post its output and its end on the thread",
		ArgsUsage: "-- COMMAND",
		Description: `arbe exec starts it in a thread's box. It posts no entry of a run. A request on the thread
(signal.exec.cancel_requested) and TERM end the command.

` + envHelp,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "id", Usage: "the command's `ID` on the thread (required)"},
			&cli.StringFlag{Name: "cwd", Usage: "run in `FOLDER` (default: this one)"},
			&cli.DurationFlag{Name: "timeout", Usage: "end the command after `DURATION`; 0 for never"},
			&cli.StringFlag{Name: "stdin", Usage: "give the command the content of `FILE`, which is removed"},
			&cli.StringFlag{Name: "from", Usage: "`OFFSET` of the thread before which no request to cancel stands"},
		}, append(variableFlags(onThread...), variableFlags("sandbox")...)...),
		Action: p.execAction,
	}
}

func (p *program) execAction(c *cli.Context) error {
	switch {
	case p.job == nil && !thread.ValidRun(c.String("id")):
		return cmdline.Usage("--id %q: want 1 to 128 characters of A-Z a-z 0-9 _ ~ -", c.String("id"))
	case c.NArg() == 0:
		return cmdline.Usage("want a COMMAND after --")
	case c.Duration("timeout") < 0:
		return cmdline.Usage("--timeout: want at least 0")
	}
	s, err := readSettings(p.getenv, p.environ, false)
	if err != nil {
		return err
	}
	if p.job == nil {
		// The environment of this process has tokens, and other processes can read it.
		return job{Args: os.Args, Environ: p.environ}.become(execName, argExec, c.String("id"))
	}
	// Without it, orphans of the command that cleared their environment are not found.
	reaper := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil
	dir, err := filepath.Abs(c.String("cwd"))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(p.stderr, nil)).With("thread", s.thread, "exec", c.String("id"))
	client := s.client(log)
	ctx, _, stop := untilSignal(c.Context, log)
	defer stop()
	// Tokens are renewed up to the last post, which comes behind the order to end.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var kept sync.WaitGroup
	kept.Go(func() { _ = client.KeepToken(life) }) // it logs its errors
	defer kept.Wait()
	defer end()
	stdin, err := takeStdin(c.String("stdin"))
	if err != nil {
		return cmdline.Unread("--stdin", err)
	}
	defer stdin.Close() // it was only read
	err = command.Run(ctx, command.Config{
		ID: c.String("id"), Argv: c.Args().Slice(), Dir: dir, Env: cleanEnviron(p.environ), Stdin: stdin,
		Timeout: c.Duration("timeout"), From: c.String("from"), Reaper: reaper,
		Client: client, Author: s.author, Sandbox: s.sandbox, Boot: runfolder.BootID(), Redact: s.redact, Log: log,
	})
	switch {
	case errors.Is(err, command.ErrTaken):
		return &cmdline.Exit{Status: runner.StatusConfig, Cause: err}
	case err != nil:
		return &cmdline.Exit{Status: exitUndelivered, Cause: err}
	}
	removeLog(c.String("id"))
	return nil
}

// takeStdin opens a file, and removes it: nobody else needs it. It returns nil for no file.
func takeStdin(path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err == nil {
		_ = os.Remove(path) // a file that is left is the box's
	}
	return f, err
}

// removeLog removes the file that this process logs to, where its host has named it by the command: all of a command is
// on the thread.
func removeLog(id string) {
	path, err := os.Readlink("/proc/self/fd/2")
	if err == nil && strings.HasSuffix(path, "/.arbe/exec/"+id+".log") {
		_ = os.Remove(path) // a file that is left is small
	}
}

// supervise runs the job of a supervisor.
func supervise(stderr io.Writer) int {
	runner.Hide()
	j, err := receiveJob()
	if err != nil {
		fmt.Fprintln(stderr, "arbe-pi-runner: supervise:", err)
		return cmdline.StatusUsage
	}
	p := program{stdout: io.Discard, stderr: stderr, environ: j.Environ, job: &j}
	return p.run(j.Args)
}
