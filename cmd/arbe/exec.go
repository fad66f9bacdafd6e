package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/stdin"
	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
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
	id, err := cmd.toChange(c.Context, cmd.arg(0))
	if err != nil {
		return err
	}
	h, err := cmd.host()
	if err != nil {
		return err
	}
	client, err := h.client(id)
	if err != nil {
		return err
	}
	if cancel != "" {
		return p.cancelExec(c, client, cancel)
	}
	env, err := variables("env", c.StringSlice("env"))
	if err != nil {
		return err
	}
	r := exec.Request{
		Thread: id, ID: uuid.Must(uuid.NewV7()).String(), Author: c.String("author"), Argv: c.Args().Tail(),
		Cwd: c.String("cwd"), Env: env, Timeout: c.Duration("timeout"),
	}
	if r.Stdin, err = p.stdinOf(c); err != nil {
		return err
	}
	var bad *exec.BadRequestError
	if err := r.Check(); errors.As(err, &bad) {
		return cmdline.Usage("%w", err)
	}
	key, err := secret(h.data)
	if err != nil {
		return err
	}
	steps := cmdline.NewSteps(p.stderr)
	defer steps.End()
	x := h.commands(client, key)
	x.Progress = steps.Begin
	row, err := h.rowOfExec(c, id, c.String("environment"))
	switch {
	case err != nil:
		return databaseExit(err)
	case row != nil:
		err = h.byRow(c, row, x, &r, key)
	case c.String("environment") != "":
		err = cmdline.Usage("--environment: thread %s is of no house in a database", id)
	default:
		err = h.hasBox(c.Context, client, x)
	}
	if err != nil {
		return err
	}
	// From here on: a signal that comes while the command is started ends the start, or is followExec's.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	// Noted before the command exists, so reconcile --all finds it.
	if err := remember(h.data, id); err != nil {
		return err
	}
	posted, err := x.Post(c.Context, r)
	if err != nil {
		return reachThread(client, err)
	}
	// The command's end is on the thread, whatever becomes of this process.
	box, err := x.Fire(c.Context, posted)
	if err != nil {
		return doubtful(c.Context, client, &cmdline.Exit{Status: 1, Cause: err})
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
	return p.followExec(c, signals, client, posted, func(ctx context.Context) { x.Ended(ctx, box, posted.Request) })
}

// stdinOf returns the stdin of the command; nil without --stdin.
func (p *program) stdinOf(c *cli.Context) ([]byte, error) {
	if !c.Bool("stdin") {
		return nil, nil
	}
	in := p.given(c.Context, "the command's input", true)
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
func (p *program) cancelExec(c *cli.Context, client *thread.Client, id string) error {
	var none *exec.NoCommandError
	switch err := exec.Cancel(c.Context, client, id, c.String("author"), ""); {
	case errors.As(err, &none):
		return &cmdline.Exit{Status: 1, Cause: err}
	case err != nil:
		return reachThread(client, err)
	}
	fmt.Fprintf(p.stderr, "asked command %s to end\n", id)
	return nil
}

// followExec shows a command's output, and ends with its status.
func (p *program) followExec(
	c *cli.Context, signals <-chan os.Signal, client *thread.Client, posted exec.Posted, drop func(context.Context),
) error {
	ctx, leave := context.WithCancel(context.WithoutCancel(c.Context))
	defer leave()
	type result struct {
		end thread.ExecFinished
		ok  bool
		err error
	}
	over := make(chan result, 1)
	go func() {
		end, ok, err := exec.Follow(ctx, client, posted.ID, posted.Offset, p.printOutput)
		over <- result{end, ok, err}
	}()
	for asked := false; ; {
		select {
		case r := <-over:
			if r.err != nil || !r.ok {
				return errors.Join(reach(r.err), &cmdline.Exit{Status: 1, Cause: fmt.Errorf(
					"the command continues: arbe thread tail %s shows it, arbe exec --cancel %s %[1]s ends it",
					posted.Thread, posted.ID)})
			}
			drop(ctx)
			return p.execEnded(r.end, posted)
		case sig := <-signals:
			if asked || sig != syscall.SIGINT {
				leave()
				continue
			}
			asked = true
			const reason = "interrupted at the terminal"
			// A second signal ends the tries of a server that is away: the loop receives it, too.
			trying, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			err := exec.Ask(trying, client, posted.ID, posted.Author, reason)
			stop()
			if err != nil {
				fmt.Fprintf(p.stderr, "arbe: %v\n", err)
				continue
			}
			fmt.Fprintln(p.stderr, "asked the command to end")
		}
	}
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
func (h host) hasBox(ctx context.Context, client *thread.Client, x *exec.Host) error {
	if _, err := exists(ctx, client); err != nil {
		return reachThread(client, err)
	}
	if _, _, err := h.boxes(client, x.Lease).Find(ctx); err != nil {
		return &cmdline.Exit{Status: 1, Cause: err}
	}
	return nil
}

// commands returns what runs commands in the box of a thread.
func (h host) commands(client *thread.Client, key []byte) *exec.Host {
	mint := h.minting(client.Base, key, client)
	leases := func(ctx context.Context, box sandbox.Ref) (lease.Lease, error) {
		labels, err := h.labelsOf(ctx, box)
		switch {
		case err != nil:
			return nil, err
		case labels[sandbox.LabelRow] != "":
			return h.leaseOf(box, labels)
		}
		c, err := mint(lease.Stream(box))
		return lease.OnStream{Client: c}, err
	}
	return &exec.Host{
		Client: client, Box: h.boxes(client, leases).Box, Lease: leases, Runner: runnerFor,
		StreamURL: func(provider string) (string, error) { return boxStreamURL(h.data, provider) },
		Tokens:    execTokens(key, ""),
	}
}

// labelsOf returns the labels of a box; none of one that its provider does not list.
func (h host) labelsOf(ctx context.Context, box sandbox.Ref) (map[string]string, error) {
	p, err := providerNamed(h.data, "the provider of the thread's box", box.Provider)
	if err != nil {
		return nil, err
	}
	boxes, err := p.List(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("the labels of the sandbox %s: %w", box, err)
	}
	if i := slices.IndexFunc(boxes, func(b sandbox.Box) bool { return b.Ref == box }); i >= 0 {
		return boxes[i].Labels, nil
	}
	return nil, nil
}

// boxes returns what finds the box of a thread.
func (h host) boxes(
	client *thread.Client, leases func(context.Context, sandbox.Ref) (lease.Lease, error),
) exec.Boxes {
	provider := func(name string) (exec.Provider, error) {
		return providerNamed(h.data, "the provider of the thread's box", name)
	}
	return exec.Boxes{Client: client, Lease: leases, Labels: h.labelsOf, Provider: provider}
}
