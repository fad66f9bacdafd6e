package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread/client"
)

// launchHelp is the part of the help that all commands which launch runs have.
func (p *program) launchHelp() string { return launchText + variablesOf(p.kinds) }

const launchText = `The runner is uploaded to the box, and the agent is installed there if it is missing. Once
the runner is started, the run no longer needs this machine: its thread has everything.

Environment:
  ARBE_STREAM_URL          the thread server (default: arbe serve on this machine)
  ARBE_BOX_STREAM_URL      its address as the box reaches it, such as a proxy's (default: ARBE_STREAM_URL)
  ARBE_RUNNER_BIN          the runner's binary for the box (default: beside arbe, or in /usr/lib/arbe)
  GITHUB_TOKEN             token for private repositories, --push and pull requests
`

func (p *program) launchFlags() []cli.Flag {
	return append(p.environmentFlags(), []cli.Flag{
		&cli.StringFlag{
			Name:  "sandbox",
			Value: "local",
			Usage: "run in a box of `PROVIDER`: " + described(p.kinds),
		},
		&cli.StringFlag{
			Name:  "harness",
			Value: "pi",
			Usage: "run the agent `HARNESS`: " + strings.Join(catalog.Names(), ", "),
		},
		&cli.StringFlag{Name: "model", Usage: "`MODEL` for the agent, as the agent names it"},
		&cli.StringFlag{Name: "thread", Usage: "`ID` of the thread (default: a new one)"},
		&cli.StringFlag{Name: "parent", Usage: "`ID` of the thread that gets the result"},
		&cli.StringFlag{Name: "parent-author", Usage: "`AUTHOR` of the result posted to --parent"},
		&cli.StringFlag{Name: "author", EnvVars: []string{"ARBE_AUTHOR_ID"}, Usage: "`AUTHOR` of the task"},
		&cli.StringFlag{
			Name:  "repo",
			Usage: "clone `ORG/REPO` and work there; for a local box also any address or path that git accepts",
		},
		&cli.StringFlag{
			Name:  "branch",
			Usage: "work on `BRANCH`: the remote's if it exists, else a new one from the default branch",
		},
		&cli.BoolFlag{
			Name:  "push",
			Usage: "after a completed run, commit uncommitted changes, push --branch, and open a pull request",
		},
		&cli.StringFlag{
			Name:      "dir",
			Usage:     "copy `FOLDER` into the box and work there, instead of --repo",
			TakesFile: true,
		},
		&cli.StringSliceFlag{
			Name:  "exclude",
			Usage: "skip files of --dir that match `PATTERN`, written as in .gitignore; may be repeated",
		},
		&cli.BoolFlag{
			Name:  "sync",
			Usage: "after a completed run, copy its changes back into --dir; conflicting files arrive as NAME.box",
		},
		&cli.BoolFlag{
			Name:  "sync-delete",
			Usage: "with --sync, delete files of --dir that were deleted in the box and did not change here",
		},
		&cli.BoolFlag{
			Name:  "sync-failed",
			Usage: "with --sync, also copy back the changes of a run that did not complete",
		},
		&cli.BoolFlag{
			Name:  "resume",
			Usage: "continue the thread's last session in its box, or rebuild it from the thread in a new one",
		},
		&cli.BoolFlag{Name: "hydrate", Usage: "with --resume, always rebuild the session from the thread"},
		&cli.BoolFlag{
			Name:  "live",
			Usage: "let the agent take chats while it runs, and wait for the next one after each turn; see arbe say",
		},
		&cli.DurationFlag{
			Name:        "idle",
			Usage:       "end a live run whose agent has waited for `DURATION` without a chat",
			DefaultText: "30m",
		},
		&cli.StringSliceFlag{
			Name:  "env",
			Usage: "pass the `VARIABLE` of this environment to the agent; may be repeated",
		},
		&cli.StringSliceFlag{
			Name:  "file",
			Usage: "copy a file into the box's home folder, mode 0600: `SOURCE:PATH`; may be repeated",
		},
		&cli.StringSliceFlag{
			Name:  "setup",
			Usage: "run the shell `COMMAND` in the box before the agent; may be repeated",
		},
		&cli.StringSliceFlag{
			Name:  "setup-env",
			Usage: "pass the `VARIABLE` of this environment to the setup commands; may be repeated",
		},
		&cli.StringSliceFlag{Name: "agent-arg", Usage: "pass `ARGUMENT` to the agent; may be repeated"},
		&cli.BoolFlag{Name: "keep", Usage: "keep the box after the run"},
		&cli.StringFlag{
			Name:  "snapshot",
			Usage: "make the box from the snapshot `NAME`: " + p.kinds.For(sandbox.OptionSnapshot),
		},
		&cli.StringFlag{
			Name: "resources",
			Usage: "make the box with `RESOURCES`, as cpu=2,memory=4,disk=10 (cores, GiB, GiB): " +
				p.kinds.For(sandbox.OptionResources),
		},
		&cli.StringFlag{
			Name:    "house",
			EnvVars: []string{"ARBE_HOUSE"},
			Usage: "label the box with the owner `NAME` (arbe.house); with --database the house that\n" +
				"owns thread and box, by name or id",
		},
		&cli.StringFlag{
			Name: "environment",
			Usage: "label the box with the environment `NAME` (arbe.environment); with --database\n" +
				"the environment by which the box is made; other flags outrank it",
		},
		&cli.StringFlag{
			Name: "agent",
			Usage: "with --database, let the bot `AGENT` of the house drive a new thread (default: its oldest\n" +
				"one of the harness)",
		},
		databaseFlag(), secretKeysFlag(), secretKMSFlag(),
	}...)
}

func (p *program) launchCommand() *cli.Command {
	return &cli.Command{
		Name:      "launch",
		Usage:     "start an agent in a box, and return",
		ArgsUsage: "-- TASK",
		Description: "Prints one JSON object, {threadId, runId, sandbox, …}, and the progress on stderr.\n" +
			"TASK may be left out with --live. Exit status 75: the thread has an open run.\n\n" + p.launchHelp(),
		Flags: p.launchFlags(),
		Action: func(c *cli.Context) error {
			h, err := p.command(c).host()
			if err != nil {
				return err
			}
			done, err := p.launch(c, h, "")
			if err != nil {
				return err
			}
			return json.NewEncoder(p.stdout).Encode(done)
		},
	}
}

func (p *program) runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "launch, show the run live, and exit with its status",
		ArgsUsage: "-- TASK",
		Description: `The run continues if this process dies. Ctrl-C asks the run to end; a second Ctrl-C stops
watching.

With --live each line of stdin is a chat for the agent, and TASK may be left out. The end of stdin,
Ctrl-D on a terminal, asks the run to do what is queued and to end.

Exit status: 0 if the verdict is completed, else the agent's own (128+n for signal n, 1 if it was 0).

` + p.launchHelp(),
		Flags:  append(p.launchFlags(), &cli.BoolFlag{Name: "full", Usage: "show long outputs whole"}),
		Action: p.runAction,
	}
}

// launch launches the task of a command line. attached is this process's hold of the box if there is work after the
// run; "" for none.
func (p *program) launch(c *cli.Context, h host, attached string) (done launch.Launched, err error) {
	o := order{
		provider: c.String("sandbox"), providerSet: c.IsSet("sandbox"), house: c.String("house"),
		agent: c.String("agent"), environment: c.String("environment"), file: c.String("environment-file"),
		to: h.provision(nil, nil),
	}
	if o.Task, err = p.taskFrom(c, h); err != nil {
		return done, err
	}
	ctx := c.Context
	if err := p.place(ctx, h, &o); err != nil {
		return done, err
	}
	cl, task := o.client, o.Task
	steps := cmdline.NewSteps(p.stderr)
	defer steps.End()
	l, err := o.to.Launcher(task, o.place, o.in, cl, func(step string) {
		if note, is := strings.CutPrefix(step, "  "); is { // a line of the step's output
			steps.Note(note)
			return
		}
		steps.Begin(step)
	})
	if err == nil && c.Bool("push") {
		err = p.checkPush(ctx, task.Box)
	}
	if err != nil {
		return done, err
	}
	if task.After.Work() {
		l.Attached = attached
	}
	if err := remember(h.data, task.Thread); err != nil {
		return done, err // noted before the run exists, so reconcile --all finds it
	}
	begun := false
	l.Begun = func() {
		begun = true
		const text = "▸ thread %[1]s\n  arbe thread tail %[1]s   shows the run\n  arbe cancel %[1]s        ends it\n"
		fmt.Fprintf(p.stderr, text, task.Thread)
	}
	done, err = l.Launch(ctx, task)
	steps.End()
	switch {
	case err != nil && !begun && ofServer(err), client.Gone(err):
		return done, reachThread(cl, err)
	case errors.As(err, new(*launch.BusyError)):
		return done, &cmdline.Exit{Status: exitBusy, Cause: err}
	case errors.As(err, new(*reap.DoubtError)):
		return done, doubtful(ctx, cl, fmt.Errorf("launch on thread %s: %w", task.Thread, err))
	case errors.Is(err, launch.ErrRow):
		return done, cmdline.Fail(exitConfig, "launch on thread %s: %w", task.Thread, err)
	case err != nil:
		return done, cmdline.Fail(1, "launch on thread %s: %w", task.Thread, err)
	}
	return done, nil
}
