package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	arbe "arbe.0sk.ar/runner"
	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
)

func harnessFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "harness", Value: "pi", Usage: "the agent's `HARNESS`: " + strings.Join(harness.Names(), ", "),
	}
}

func (p *program) runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run the agent on a prompt, and exit with its status",
		ArgsUsage: "[-- PROMPT]",
		Description: `Opens the run on the thread, starts the agent, mirrors its session line by line, and posts the verdict.
Without PROMPT and --prompt-file the prompt is the chat <run id>.prompt on the thread.

` + envHelp + `

Exit status:
  0   the verdict is completed
  64  the command line is wrong
  65  not a session file
  69  the agent can't be started
  75  the end of the run could not be delivered
  78  the environment is wrong, or the server refuses the token
  …   else the agent's own: 128+n for signal n, 1 if it was 0`,
		Flags: slices.Concat([]cli.Flag{
			harnessFlag(),
			&cli.StringFlag{Name: "cwd", Usage: "work in `FOLDER` (default: the current one)"},
			&cli.StringFlag{Name: "model", Usage: "`MODEL` for the agent, as the agent names it"},
			&cli.StringFlag{
				Name: "session", Usage: "work in the session `FILE`, which is created if it is missing",
			},
			&cli.BoolFlag{
				Name: "resume",
				Usage: "continue the session of the thread's last run: this box's own file, or one rebuilt from the " +
					"thread",
			},
			&cli.BoolFlag{Name: "hydrate", Usage: "with --resume, always rebuild the session from the thread"},
			&cli.StringFlag{Name: "agent-bin", Usage: "start the agent's binary `FILE` (default: as PATH has it)"},
			&cli.StringSliceFlag{Name: "agent-arg", Usage: "pass `ARGUMENT` to the agent; may be repeated"},
			&cli.StringFlag{Name: "prompt-file", Usage: "read the prompt from `FILE`, - for stdin"},
			&cli.BoolFlag{
				Name:  "pty",
				Usage: "show the agent's own interface in this terminal; PROMPT is optional",
			},
			&cli.BoolFlag{
				Name:  "live",
				Usage: "give the agent the thread's chats while it runs; PROMPT is the first, and optional",
			},
			&cli.DurationFlag{
				Name:  "idle",
				Usage: "with --live, end the run when no chat has come for `DURATION`",
				Value: runner.DefaultIdle,
			},
			&cli.DurationFlag{
				Name:  "stall-timeout",
				Usage: "end an agent without output and CPU time for `DURATION` (default: off)",
			},
			&cli.DurationFlag{
				Name: "unreachable-timeout",
				Usage: "end an agent that can't reach its provider for `DURATION` (default: 10m for codex; " +
					"the others end on their own)",
			},
			&cli.BoolFlag{
				Name:  "kill-leftovers",
				Usage: "end processes that the agent leaves, also after a normal end",
			},
			&cli.BoolFlag{
				Name:  "remove-token-file",
				Usage: "remove the token file once it is read, before the agent starts",
			},
			cmdline.Verbose(),
			cmdline.LogFormat(),
		}, variableFlags(append(onThread, "state-dir", "run-id", "timeout", "heartbeat", "next-index", "sandbox")...)),
		Action: p.runAction,
	}
}

func (p *program) runAction(c *cli.Context) error {
	spec, err := harness.Lookup(c.String("harness"))
	if err != nil {
		return &cmdline.Exit{Status: cmdline.StatusUsage, Cause: err}
	}
	if p.job != nil {
		return p.runWorker(c, spec)
	}
	// All is checked before anything is done, the command line first.
	if err := cmdline.CheckLogFormat(c); err != nil {
		return err
	}
	for _, name := range []string{"stall-timeout", "unreachable-timeout"} {
		if d := c.Duration(name); d < 0 {
			return cmdline.Usage("--%s %v: want more than 0", name, d)
		}
	}
	if err := checkLive(c, spec); err != nil {
		return err
	}
	if c.Bool("pty") && spec.PrintsID {
		return cmdline.Usage("--pty: %s does not print the id of its session in its own interface", spec.Name)
	}
	if c.Bool("hydrate") && !c.Bool("resume") {
		return cmdline.Usage(
			"--hydrate is for --resume; to rebuild a session and no more there is arbe-pi-runner hydrate")
	}
	if _, is := cmdline.Terminal(os.Stdin); c.Bool("pty") && !is {
		return cmdline.Usage("--pty needs a terminal; stdin is not one")
	}
	prompt, err := p.promptFrom(c)
	if err != nil {
		return err
	}
	cwd, err := workDir(c.String("cwd"))
	if err != nil {
		return err
	}
	session := c.String("session")
	if session != "" {
		if session, err = filepath.Abs(session); err != nil {
			return cmdline.Usage("--session: %w", err)
		}
	}
	s, err := readSettings(p.getenv, p.environ, false)
	if err != nil {
		return err
	}
	return p.handOn(c, s, job{
		Args: os.Args, Environ: p.environ, RunID: s.runID, State: s.state, Cwd: cwd,
		Session: session, Prompt: prompt, PTY: c.Bool("pty"), Live: c.Bool("live"), LogFormat: c.String("log-format"),
	})
}

// checkLive checks --live and what goes with it.
func checkLive(c *cli.Context, spec harness.Spec) error {
	switch {
	case c.IsSet("idle") && !c.Bool("live"):
		return cmdline.Usage("--idle is for --live")
	case c.Duration("idle") <= 0:
		return cmdline.Usage("--idle %v: want more than 0", c.Duration("idle"))
	case c.Bool("live") && c.Bool("pty"):
		return cmdline.Usage("--live and --pty exclude each other")
	case c.Bool("live") && spec.Live == nil:
		return cmdline.Usage("--live: %s can't be spoken to while it runs", spec.Name)
	}
	return nil
}

// runWorker runs a worker.
func (p *program) runWorker(c *cli.Context, spec harness.Spec) error {
	s, err := readSettings(p.getenv, p.environ, true)
	if err != nil {
		return err
	}
	logTo := p.stderr
	if p.job.PTY { // the terminal is the agent's
		logTo = io.Discard
		f, err := os.OpenFile(filepath.Join(p.folder.Path, "log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err == nil { // a run without a log is better than none
			defer f.Close() // a log
			logTo = f
		}
	}
	log := p.log(c, logTo, p.byHand && !p.job.PTY).With("thread", s.thread, "run", p.job.RunID)
	client := s.client(log)
	ctx, abandon, stop := untilSignal(c.Context, log, p.job.Signals...)
	defer stop()
	var tty *os.File
	if p.job.PTY {
		tty = os.Stdin
	}
	res, err := runner.Run(ctx, abandon, runner.Config{
		Spec: spec, Version: arbe.This().String(),
		ThreadID: s.thread, RunID: p.job.RunID, Author: s.author, Sandbox: s.sandbox,
		Binary: c.String("agent-bin"), Args: c.StringSlice("agent-arg"), Model: c.String("model"), Prompt: p.job.Prompt,
		Cwd: p.job.Cwd, CwdGiven: c.IsSet("cwd"), Session: p.job.Session, Resume: c.Bool("resume"),
		Hydrate: c.Bool("hydrate"), NextIndex: s.next, Environ: p.environ, State: p.job.State,
		Guard: s.guard, GuardWhy: s.guardWhy,
		Stall: c.Duration("stall-timeout"), Unreachable: c.Duration("unreachable-timeout"),
		Heartbeat: s.heartbeat, KillLeftovers: c.Bool("kill-leftovers"),
		Client: client, Redact: s.redact, Log: log,
		ByHand: p.byHand, Stdout: p.stdout, Stderr: p.screen, TTY: tty,
		Live: c.Bool("live"), Idle: c.Duration("idle"), CloseInput: p.keeper.CloseInput,
		Keeper: p.job.Keeper, Folder: p.folder, Restarts: p.job.Worker, Unwritable: p.job.Unwritable,
	})
	return runStatus(spec, res, err)
}

// handOn makes this process the run's keeper.
func (p *program) handOn(c *cli.Context, s settings, j job) error {
	if j.Prompt == "" && j.RunID == "" && !j.PTY && !j.Live {
		return cmdline.Usage(
			"no prompt: give one after --, or --prompt-file, or ARBE_RUN_ID with a prompt on the thread")
	}
	if j.RunID == "" {
		j.RunID = runner.NewID()
	}
	if file := p.getenv("ARBE_STREAM_TOKEN_FILE"); file != "" && c.Bool("remove-token-file") {
		token, err := s.token()
		if err == nil {
			err = os.Remove(file)
		}
		if err != nil {
			return &cmdline.Exit{Status: runner.StatusConfig, Cause: fmt.Errorf("--remove-token-file: %w", err)}
		}
		j.Environ = append([]string{"ARBE_STREAM_TOKEN=" + token, "ARBE_STREAM_TOKEN_FILE="}, j.Environ...)
	}
	return j.become(os.Args[0], argKeep, j.RunID)
}

// runStatus returns the exit status of a run, with a message for the user.
func runStatus(spec harness.Spec, res runner.Result, err error) error {
	var busy *runfolder.BusyError
	var missing *harness.NotFoundError
	switch {
	case errors.Is(err, runner.ErrUndelivered) && res.Folder == "":
		return &cmdline.Exit{Status: exitUndelivered, Cause: err}
	case errors.Is(err, runner.ErrUndelivered):
		return &cmdline.Exit{
			Status: exitUndelivered,
			Cause:  fmt.Errorf("%w\nthe run is recorded in %s; arbe-pi-runner recover sends its end", err, res.Folder),
		}
	case errors.Is(err, runner.ErrRefused), errors.Is(err, runner.ErrTaken), errors.As(err, &busy):
		return &cmdline.Exit{Status: runner.StatusConfig, Cause: err}
	case err != nil:
		return err
	case res.NotStarted == nil:
		return &cmdline.Exit{Status: res.Verdict.ExitStatus()}
	case errors.As(res.NotStarted, &missing):
		return &cmdline.Exit{
			Status: res.NotStarted.Status,
			Cause:  fmt.Errorf("%w\ninstall it with: %s", missing, spec.Install()),
		}
	}
	return &cmdline.Exit{
		Status: res.NotStarted.Status,
		Cause:  fmt.Errorf("the agent could not be started: %w", res.NotStarted),
	}
}

// promptFrom returns the prompt of the command line; "" if it has none.
func (p *program) promptFrom(c *cli.Context) (prompt string, err error) {
	file := c.String("prompt-file")
	switch {
	case c.Args().Present() && file != "":
		return "", cmdline.Usage("a PROMPT and --prompt-file exclude each other")
	case c.Args().Present():
		prompt = strings.Join(c.Args().Slice(), " ")
	case file == "-":
		b, err := io.ReadAll(c.App.Reader)
		if err != nil {
			return "", cmdline.Usage("read the prompt from stdin: %w", err)
		}
		prompt = string(b)
	case file != "":
		b, err := os.ReadFile(file)
		if err != nil {
			return "", cmdline.Unread("read the prompt", err)
		}
		prompt = string(b)
	default:
		return "", nil
	}
	if strings.TrimSpace(prompt) == "" {
		return "", cmdline.Usage("the prompt is empty")
	}
	return prompt, nil
}

// workDir returns the absolute path of the folder that the agent works in.
func workDir(dir string) (string, error) {
	if dir == "" {
		dir = "."
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", cmdline.Unread("--cwd", err)
	}
	if st, err := os.Stat(abs); err != nil || !st.IsDir() {
		return "", cmdline.Usage("--cwd: %s is not a folder", abs)
	}
	return abs, nil
}
