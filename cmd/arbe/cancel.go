package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) cancelCommand() *cli.Command {
	return &cli.Command{
		Name:      "cancel",
		Usage:     "ask a thread's run to end",
		ArgsUsage: "ID",
		Description: `The request is an entry on the thread. The runner receives it within seconds: it stops the
agent, posts the agent's remaining lines, and ends the run. With --database a delegated task that no
host has launched yet is ended, too: it never runs.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "run", Usage: "cancel the run with the id `RUN` (default: the one that is running)"},
			&cli.StringFlag{Name: "reason", Usage: "`TEXT` of the reason, for the run's end"},
			&cli.StringFlag{Name: "author", EnvVars: []string{"ARBE_AUTHOR_ID"}, Usage: "`AUTHOR` of the request"},
			&cli.BoolFlag{Name: "wait", Usage: "wait for the run's end, and print its status"},
			databaseFlag(),
		},
		Action: p.cancelAction,
	}
}

func (p *program) cancelAction(c *cli.Context) error {
	cmd, named, reason := p.command(c), c.String("run"), c.String("reason")
	id, err := cmd.oneToChange(c.Context)
	if err != nil {
		return err
	}
	cl, err := cmd.client(id, token.ScopeWrite)
	if err != nil {
		return err
	}
	fold, next, unread := readRuns(c.Context, cl, "signal.")
	if unread != nil && !client.NoThread(unread) {
		return reachThread(cl, unread)
	}
	run, harness := named, ""
	for _, r := range fold.Runs() {
		if r.Status == thread.StatusRunning && (run == "" || r.ID == run) {
			run, harness = r.ID, r.Harness
		}
	}
	if statusOf(fold, run) == thread.StatusRunning {
		err = p.askToEnd(c.Context, cl, run, harness, cmd.author, reason)
	} else {
		var ended bool
		switch run, ended, err = cmd.cancelTask(c.Context, id, run, reason); {
		case err != nil:
		case run == "":
			err = noOpenRun(cl, fold, named, unread)
		case ended:
			fmt.Fprintf(p.stderr, "cancelled the task of thread %s: it was not launched yet\n", id)
		default:
			fmt.Fprintf(p.stderr, "asked run %s to end\n", run)
		}
	}
	if err != nil || !c.Bool("wait") {
		return err
	}
	return p.awaitEnd(c.Context, cl, next, fold, run)
}

// awaitEnd follows a thread from an offset until a run has ended, and prints its status.
func (p *program) awaitEnd(ctx context.Context, cl *client.Client, next string, fold *thread.Fold, run string) error {
	err := cl.Only("signal.").Follow(ctx, cmp.Or(next, "0"), func(e thread.Entry) error {
		fold.Add(e)
		if s := statusOf(fold, run); s != "" && s != thread.StatusRunning {
			return client.ErrStop
		}
		return nil
	}, nil)
	if err != nil || ctx.Err() != nil {
		return reach(err)
	}
	fmt.Fprintln(p.stdout, statusOf(fold, run))
	return nil
}

// noOpenRun is the error of a thread that has no open run, or not the one that was named.
func noOpenRun(cl *client.Client, fold *thread.Fold, run string, unread error) error {
	if unread != nil {
		return reachThread(cl, unread)
	}
	what := fmt.Sprintf("thread %s has no open run", cl.Thread)
	if run != "" {
		what = fmt.Sprintf("run %s of thread %s is not open", run, cl.Thread)
	}
	return cmdline.Fail(1,
		"%s: the thread is %s; arbe thread status --json %s lists its runs", what, fold.Status(), cl.Thread)
}

// cancelTask asks for the end of a thread's task that waits for a host to launch it, and ends it unless a host has it:
// then that one does, and ended is false. It returns the task's run; "" where none waits, or where that is not the run
// that was named.
func (c command) cancelTask(ctx context.Context, id, named, reason string) (run string, ended bool, err error) {
	h, err := c.host()
	if err != nil {
		return "", false, err
	}
	o, waits, err := h.queued(ctx, id)
	if err != nil || !waits || named != "" && named != o.Run() {
		return "", false, databaseExit(err)
	}
	run = o.Run()
	client, err := h.client(id)
	if err != nil {
		return run, false, err
	}
	if _, err = client.Append(ctx, []thread.Entry{endOf(run, o.Harness, c.author, reason)}); err != nil {
		return run, false, reach(err)
	}
	switch err = h.withdraw(ctx, id); {
	case rows.IsAway(err):
		return run, false, databaseExit(err)
	case err != nil:
		return run, false, reach(err)
	}
	fold, _, err := readRuns(ctx, client, "signal.") // the server may have ended it before
	if err != nil || statusOf(fold, run) != thread.StatusCancelled {
		return run, false, reach(err)
	}
	s, err := h.reconciler().Thread(ctx, id)
	if !s.Open {
		h.forget(id)
	}
	return run, true, reach(err)
}

// askToEnd asks a run to end.
func (p *program) askToEnd(ctx context.Context, cl *client.Client, run, harness, author, reason string) error {
	if _, err := cl.Append(ctx, []thread.Entry{endOf(run, harness, author, reason)}); err != nil {
		return reach(err)
	}
	fmt.Fprintf(p.stderr, "asked run %s to end\n", run)
	return nil
}

// endOf returns an entry that asks a run to end.
func endOf(run, harness, author, reason string) thread.Entry {
	return thread.Entry{
		ID: uuid.NewString(), TS: thread.Stamp(time.Now()), AuthorID: author,
		Payload: thread.Marshal(thread.Cancel{
			Signal: thread.Signal{Type: thread.TypeCancel, RunID: run, Harness: harness}, Reason: reason,
		}),
	}
}

// statusOf returns the status of the run with this id; "" if the thread has no such run.
func statusOf(fold *thread.Fold, id string) string {
	r, _ := fold.Run(id)
	return r.Status
}

// settle settles a thread. A task of it that waits, and was cancelled, ends first, so that its parent gets that end.
func (h host) settle(ctx context.Context, r *reconcile.Reconciler, id string) (reconcile.State, error) {
	err := h.withdraw(ctx, id)
	s, rerr := r.Thread(ctx, id)
	return s, errors.Join(err, rerr)
}

// queued returns the task of a thread that waits for a host to launch it, or that a host launches; false for none.
func (h host) queued(ctx context.Context, id string) (o rows.Task, is bool, err error) {
	if h.database == nil {
		return o, false, nil
	}
	db, err := h.database(ctx)
	if err == nil {
		o, err = control.Queue{DB: db}.Queued(ctx, id)
	}
	if errors.Is(err, rows.ErrAbsent) {
		return o, false, nil
	}
	return o, err == nil, err
}

// withdraw ends the task of a thread that waits, if the thread asks for that. One that a host has is left to that host.
func (h host) withdraw(ctx context.Context, id string) error {
	o, is, err := h.queued(ctx, id)
	if err != nil || !is {
		return err
	}
	db, err := h.database(ctx)
	if err != nil {
		return err
	}
	to := h.provision(nil, slog.New(slog.DiscardHandler))
	_, err = to.Withdraw(ctx, control.Queue{DB: db, Host: "withdraw:" + uuid.NewString()}, o)
	return err
}
