package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

func (p *program) cancelCommand() *cli.Command {
	return &cli.Command{
		Name:      "cancel",
		Usage:     "ask a thread's run to end",
		ArgsUsage: "ID",
		Description: `The request is an entry on the thread. The runner receives it within seconds: it stops the
agent, posts the agent's remaining lines, and ends the run.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "run", Usage: "cancel the run with the id `RUN` (default: the one that is running)"},
			&cli.StringFlag{Name: "reason", Usage: "`TEXT` of the reason, for the run's end"},
			&cli.StringFlag{Name: "author", EnvVars: []string{"ARBE_AUTHOR_ID"}, Usage: "`AUTHOR` of the request"},
			&cli.BoolFlag{Name: "wait", Usage: "wait for the run's end, and print its status"},
		},
		Action: p.cancelAction,
	}
}

func (p *program) cancelAction(c *cli.Context) error {
	id, err := p.oneToChange(c)
	if err != nil {
		return err
	}
	client, err := p.client(c, id, token.ScopeWrite)
	if err != nil {
		return err
	}
	var fold thread.Fold
	signals := client.Only("signal.")
	page, err := signals.Read(c.Context, "0", false, func(e thread.Entry) error { fold.Add(e); return nil })
	if err != nil {
		return reachThread(client, err)
	}
	run, harness := c.String("run"), ""
	for _, r := range fold.Runs() {
		if r.Status == thread.StatusRunning && (run == "" || r.ID == run) {
			run, harness = r.ID, r.Harness
		}
	}
	if statusOf(&fold, run) != thread.StatusRunning {
		what := fmt.Sprintf("thread %s has no open run", id)
		if run != "" {
			what = fmt.Sprintf("run %s of thread %s is not open", run, id)
		}
		return &cmdline.Exit{Status: 1, Cause: fmt.Errorf(
			"%s: the thread is %s; arbe thread status --json %s lists its runs", what, fold.Status(), id)}
	}
	if err := p.askToEnd(c.Context, client, run, harness, c.String("author"), c.String("reason")); err != nil {
		return err
	}
	if !c.Bool("wait") {
		return nil
	}
	err = signals.Follow(c.Context, page.Next, func(e thread.Entry) error {
		if fold.Add(e); statusOf(&fold, run) != thread.StatusRunning {
			return thread.ErrStop
		}
		return nil
	}, nil)
	if err != nil || c.Context.Err() != nil {
		return reach(err)
	}
	fmt.Fprintln(p.stdout, statusOf(&fold, run))
	return nil
}

// askToEnd asks a run to end.
func (p *program) askToEnd(ctx context.Context, client *thread.Client, run, harness, author, reason string) error {
	_, err := client.Append(ctx, []thread.Entry{{
		ID: uuid.NewString(), TS: thread.Stamp(time.Now()), AuthorID: author,
		Payload: thread.Marshal(
			thread.Cancel{
				Signal: thread.Signal{Type: thread.TypeCancel, RunID: run, Harness: harness},
				Reason: reason,
			},
		),
	}})
	if err != nil {
		return reach(err)
	}
	fmt.Fprintf(p.stderr, "asked run %s to end\n", run)
	return nil
}

// statusOf returns the status of the run with this id; "" if the thread has no such run.
func statusOf(fold *thread.Fold, id string) string {
	r, _ := fold.Run(id)
	return r.Status
}
