package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/stdin"
	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) execCommand() *cli.Command {
	return &cli.Command{
		Name:      "exec",
		Usage:     "run a command in a thread's box, with its output on the thread",
		ArgsUsage: "ID -- COMMAND",
		Description: `Runs COMMAND in the box of the thread's newest run, shows its output, and exits with its status
(128+n for signal n). COMMAND is not for a shell: for pipes and variables use sh -c '…'. Output and end are
entries on the thread; of the output the first 1 MiB.

The command continues if this process dies. Ctrl-C asks the command to end; a second Ctrl-C stops watching.
It gets TERM, and KILL 5 s later, as after --timeout. Several commands may run at the same time, beside a run.

With --database the box of a house's thread is resolved by rows: a live one is used, a dead one replaced, and one
is made where the thread has none, by --environment, the thread's or the house's environment. The command gets
the secrets of that environment.

Environment: as of arbe launch.`,
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "cwd", Usage: "run in `FOLDER` of the box, from the working directory on (default: that)",
			},
			&cli.StringSliceFlag{
				Name: "env", Usage: "pass the `VARIABLE` of this environment to the command; may be repeated",
			},
			&cli.DurationFlag{
				Name: "timeout", Value: exec.DefaultTimeout, Usage: "end the command after `DURATION`, at most 72h",
			},
			&cli.BoolFlag{
				Name: "stdin", Aliases: []string{"i"},
				Usage: "give stdin to the command: read to its end before, at most 16 MiB",
			},
			&cli.BoolFlag{Name: "detach", Usage: "print {threadId, execId} once the command is started, and return"},
			&cli.StringFlag{
				Name: "cancel", Usage: "in place of COMMAND: ask the command with the id `EXEC` to end",
			},
			&cli.StringFlag{Name: "author", EnvVars: []string{"ARBE_AUTHOR_ID"}, Usage: "`AUTHOR` of the command"},
			&cli.StringFlag{
				Name: "environment", Usage: "`NAME` or id of the environment of a new box; for a thread of a house",
			},
			databaseFlag(), secretKeysFlag(), secretKMSFlag(),
		},
		Action: p.execAction,
	}
}

func (p *program) execAction(c *cli.Context) error {
	cancel := c.String("cancel")
	switch {
	case c.NArg() < 1:
		return cmdline.Usage("want a thread id")
	case cancel != "" && c.NArg() > 1:
		return cmdline.Usage("--cancel takes no COMMAND")
	case cancel != "" && !thread.ValidRun(cancel):
		return cmdline.Usage("--cancel %q: want the id of a command", cancel)
	case cancel == "" && c.NArg() < 2:
		return cmdline.Usage("want a COMMAND after --")
	case cancel == "" && c.Duration("timeout") <= 0:
		return cmdline.Usage("--timeout: want more than 0")
	}
	cmd := p.command(c)
	id, err := cmd.toChange(c.Context, cmd.first())
	if err != nil {
		return err
	}
	h, err := cmd.host()
	if err != nil {
		return err
	}
	cl, err := h.client(id)
	if err != nil {
		return err
	}
	if cancel != "" {
		return p.cancelExec(c.Context, cl, cancel, c.String("author"))
	}
	env, err := variables("env", c.StringSlice("env"))
	if err != nil {
		return err
	}
	r := exec.Request{
		Thread: id, ID: uuid.Must(uuid.NewV7()).String(), Author: c.String("author"), Argv: c.Args().Tail(),
		Cwd: c.String("cwd"), Env: env, Timeout: c.Duration("timeout"),
	}
	if c.Bool("stdin") {
		if r.Stdin, err = p.stdinOf(c.Context); err != nil {
			return err
		}
	}
	if err := r.Check(); errors.As(err, new(*exec.BadRequestError)) {
		return cmdline.Usage("%w", err)
	}
	key, err := secret(h.data)
	if err != nil {
		return err
	}
	steps := cmdline.NewSteps(p.stderr)
	defer steps.End()
	to := h.provision(key, nil)
	environment, err := h.environmentFor(c.Context, id, c.String("environment"))
	if err != nil {
		return databaseExit(err)
	}
	x, rowed, err := to.Command(c.Context, cl, &r, environment, steps.Begin)
	switch {
	case err != nil:
		err = databaseExit(err)
	case rowed:
	case c.String("environment") != "":
		err = cmdline.Usage("--environment: thread %s is of no house in a database", id)
	default:
		err = hasBox(c.Context, cl, to)
	}
	if err != nil {
		return err
	}
	// From here on: a signal that comes while the command is started ends the start, or is followExec's.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, leaving...)
	defer signal.Stop(signals)
	// Noted before the command exists, so reconcile --all finds it.
	if err := remember(h.data, id); err != nil {
		return err
	}
	posted, err := x.Post(c.Context, r)
	if err != nil {
		return reachThread(cl, err)
	}
	// The command's end is on the thread, whatever becomes of this process.
	box, err := x.Fire(c.Context, posted)
	if err != nil {
		return doubtful(c.Context, cl, &cmdline.Exit{Status: 1, Cause: err})
	}
	steps.End()
	if r.Stdin == nil && stdin.Waits(p.stdin) {
		fmt.Fprintln(p.stderr, "arbe: the command does not get stdin; --stdin gives it")
	}
	if c.Bool("detach") {
		return json.NewEncoder(p.stdout).Encode(struct {
			Thread string `json:"threadId"`
			Exec   string `json:"execId"`
		}{id, r.ID})
	}
	drop := func(ctx context.Context) { x.Ended(ctx, box, posted.Request) }
	return p.followExec(c.Context, signals, cl, posted, drop)
}

// stdinOf reads the stdin of the command.
func (p *program) stdinOf(ctx context.Context) ([]byte, error) {
	in := p.given(ctx, "the command's input")
	defer in.Close() // what can't be restored is gone
	b, err := io.ReadAll(io.LimitReader(in, exec.MostStdin+1))
	if err != nil {
		return nil, fmt.Errorf("read stdin: %w", err)
	}
	if b == nil {
		b = []byte{}
	}
	return b, nil
}

// cancelExec asks a command to end.
func (p *program) cancelExec(ctx context.Context, cl *client.Client, id, author string) error {
	switch err := exec.Cancel(ctx, cl, id, author, ""); {
	case errors.As(err, new(*exec.NoCommandError)):
		return &cmdline.Exit{Status: 1, Cause: err}
	case err != nil:
		return reachThread(cl, err)
	}
	fmt.Fprintf(p.stderr, "asked command %s to end\n", id)
	return nil
}

// followExec shows a command's output, and ends with its status.
func (p *program) followExec(
	ctx context.Context, signals <-chan os.Signal, cl *client.Client, posted exec.Posted,
	drop func(context.Context),
) error {
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	type result struct {
		end thread.ExecFinished
		ok  bool
		err error
	}
	over := make(chan result, 1)
	go func() {
		end, ok, err := exec.Follow(ctx, cl, posted.ID, posted.Offset, p.printOutput)
		over <- result{end, ok, err}
	}()
	r := attend(over, signals, leave, func() {
		// A second signal ends the tries of a server that is away: attend receives it, too.
		trying, stop := signal.NotifyContext(ctx, leaving...)
		defer stop()
		if err := exec.Ask(trying, cl, posted.ID, posted.Author, interrupted); err != nil {
			fmt.Fprintf(p.stderr, "arbe: %v\n", err)
			return
		}
		fmt.Fprintln(p.stderr, "asked the command to end")
	})
	if r.err != nil || !r.ok {
		return errors.Join(reach(r.err), cmdline.Fail(1,
			"the command continues: arbe thread tail %s shows it, arbe exec --cancel %s %[1]s ends it",
			posted.Thread, posted.ID))
	}
	drop(ctx)
	return p.execEnded(r.end, posted)
}

// printOutput prints a piece of a command's output on the stream that it came from.
func (p *program) printOutput(o thread.ExecOutput) error {
	w := p.stdout
	if o.Stream == thread.StreamStderr {
		w = p.stderr
	}
	if _, err := fmt.Fprint(w, o.Text); err != nil {
		return err // nobody reads it
	}
	if o.Truncated {
		fmt.Fprintf(p.stderr, "\narbe: the rest of the output is not on the thread\n")
	}
	return nil
}

// execEnded prints what the status does not tell of a command's end, and returns the error with the status; nil for 0.
func (p *program) execEnded(end thread.ExecFinished, posted exec.Posted) error {
	say := func(format string, args ...any) { fmt.Fprintf(p.stderr, "arbe: "+format+"\n", args...) }
	if end.Dropped > 0 {
		say("%s of the output are not on the thread", view.Size(end.Dropped))
	}
	switch {
	case end.Error != "":
		say("%s", end.Error)
	case end.TimedOut:
		say("the command was ended after %v", posted.Timeout)
	case end.Cancelled:
		say("the command was cancelled")
	}
	if status := exec.ExitStatus(end); status != 0 {
		return &cmdline.Exit{Status: status}
	}
	return nil
}

// hasBox returns an error for a thread without a live box. Nothing is posted then.
func hasBox(ctx context.Context, cl *client.Client, to *provision.Host) error {
	if _, err := exists(ctx, cl); err != nil {
		return reachThread(cl, err)
	}
	if _, _, err := to.BoxOf(cl).Find(ctx); err != nil {
		return &cmdline.Exit{Status: 1, Cause: err}
	}
	return nil
}
