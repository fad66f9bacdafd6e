package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
		Usage:     "ask a thread's run, and the bots that answer on it, to end",
		ArgsUsage: "ID",
		Description: `The request is an entry on the thread. The runner receives it within seconds: it stops the
agent, posts the agent's remaining lines, and ends the run. With --database a delegated task that no
host has launched yet is ended, too: it never runs.

Bots that answer on the thread are asked, too: the host of each one ends its request to the model. What it has
not begun to answer it still answers.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "run", Usage: "cancel only the run with the id `RUN`"},
			&cli.StringFlag{Name: "reaction", Usage: "cancel only the bot's reaction with the id `REACTION`, as x_…"},
			&cli.StringFlag{Name: "reason", Usage: "`TEXT` of the reason, for the end"},
			&cli.StringFlag{Name: "author", EnvVars: []string{"ARBE_AUTHOR_ID"}, Usage: "`AUTHOR` of the request"},
			&cli.BoolFlag{Name: "wait", Usage: "wait for the ends, and print the status of each"},
			databaseFlag(),
		},
		Action: p.cancelAction,
	}
}

func (p *program) cancelAction(c *cli.Context) error {
	cmd := p.command(c)
	if c.String("run") != "" && c.String("reaction") != "" {
		return cmdline.Usage("--run and --reaction exclude each other")
	}
	id, err := cmd.oneToChange(c.Context)
	if err != nil {
		return err
	}
	cl, err := cmd.client(id, token.ScopeWrite)
	if err != nil {
		return err
	}
	x := cancelling{
		command: cmd, client: cl, reason: c.String("reason"), outcomes: map[string]string{},
	}
	page, unread := cl.Only("signal.").Read(c.Context, "0", false, x.add)
	if unread != nil && !client.NoThread(unread) {
		return reachThread(cl, unread)
	}
	if c.String("run") == "" {
		if err := x.reactions(c.Context, c.String("reaction")); err != nil {
			return err
		}
	}
	if c.String("reaction") == "" {
		if err := x.oneRun(c.Context, c.String("run"), unread); err != nil {
			return err
		}
	}
	if !c.Bool("wait") {
		return nil
	}
	return x.await(c.Context, page.Next)
}

// cancelling is a cancel of what is open on a thread.
type cancelling struct {
	command
	client *client.Client
	reason string

	runs     thread.Fold
	bots     thread.Reactions
	outcomes map[string]string // of reactions that have ended

	asked []string // reactions
	run   string   // that was asked; "" for none
}

// add adds the thread's next signal.
func (x *cancelling) add(e thread.Entry) error {
	x.runs.Add(e)
	x.bots.Add(e)
	if thread.TypeOf(e.Payload) == thread.TypeReactionFinished {
		var p thread.ReactionFinished
		if json.Unmarshal(e.Payload, &p) == nil {
			x.outcomes[p.Reaction] = p.Outcome
		}
	}
	return nil
}

// reactions asks the open reactions to end, or the one that is named.
func (x *cancelling) reactions(ctx context.Context, named string) error {
	for _, j := range x.bots.Open() {
		if named != "" && j.ID != named {
			continue
		}
		_, err := x.client.Append(ctx, []thread.Entry{thread.NewEntry(uuid.NewString(), x.author, thread.ReactionCancel{
			Type: thread.TypeReactionCancel, Reaction: j.ID, Reason: x.reason,
		})})
		if err != nil {
			return reach(err)
		}
		x.asked = append(x.asked, j.ID)
		fmt.Fprintf(x.stderr, "asked %s to end its reaction %s\n", (*room)(nil).name(j.Bot), j.ID)
	}
	if named != "" && len(x.asked) == 0 {
		return cmdline.Fail(1, "reaction %s of thread %s is not open", named, x.client.Thread)
	}
	return nil
}

// oneRun asks the open run to end, or the one that is named; also one that no host has launched yet. A thread without
// any is an error, unless reactions were asked.
func (x *cancelling) oneRun(ctx context.Context, named string, unread error) error {
	harness := ""
	x.run = named
	for _, r := range x.runs.Runs() {
		if r.Status == thread.StatusRunning && (x.run == "" || r.ID == x.run) {
			x.run, harness = r.ID, r.Harness
		}
	}
	if statusOf(&x.runs, x.run) == thread.StatusRunning {
		return x.askToEnd(ctx, x.client, x.run, harness, x.author, x.reason)
	}
	var ended bool
	var err error
	x.run, ended, err = x.cancelTask(ctx, x.client.Thread, x.run, x.reason)
	switch {
	case err != nil:
		return err
	case x.run == "" && len(x.asked) > 0:
	case x.run == "":
		return noOpenRun(x.client, &x.runs, named, unread)
	case ended:
		fmt.Fprintf(x.stderr, "cancelled the task of thread %s: it was not launched yet\n", x.client.Thread)
	default:
		fmt.Fprintf(x.stderr, "asked run %s to end\n", x.run)
	}
	return nil
}

// await follows the thread from an offset until all that was asked has ended, and prints each status.
func (x *cancelling) await(ctx context.Context, next string) error {
	err := x.client.Only("signal.").Follow(ctx, cmp.Or(next, "0"), func(e thread.Entry) error {
		if err := x.add(e); err != nil {
			return err
		}
		if x.ended() {
			return client.ErrStop
		}
		return nil
	}, nil)
	if err != nil || ctx.Err() != nil {
		return reach(err)
	}
	if x.run != "" {
		fmt.Fprintln(x.stdout, statusOf(&x.runs, x.run))
	}
	for _, id := range x.asked {
		fmt.Fprintln(x.stdout, x.outcomes[id])
	}
	return nil
}

// ended reports whether all that was asked to end has ended.
func (x *cancelling) ended() bool {
	if s := statusOf(&x.runs, x.run); x.run != "" && (s == "" || s == thread.StatusRunning) {
		return false
	}
	return !slices.ContainsFunc(x.asked, func(id string) bool { return x.outcomes[id] == "" })
}

// noOpenRun is the error of a thread that has no open run, or not the one that was named.
func noOpenRun(cl *client.Client, fold *thread.Fold, run string, unread error) error {
	if unread != nil {
		return reachThread(cl, unread)
	}
	what := fmt.Sprintf("thread %s has no open run and no open reaction", cl.Thread)
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
