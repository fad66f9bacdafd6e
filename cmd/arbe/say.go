package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) sayCommand() *cli.Command {
	return &cli.Command{
		Name:      "say",
		Usage:     "say something to a thread's agent",
		ArgsUsage: "ID [--] TEXT",
		Description: `Posts a chat, and prints its id. TEXT "-" is read from stdin. A live run gives the chat to its
agent: in the middle of a turn, after the turn (--follow-up), or at once, which cuts the turn off
(--interrupt). Where no live run is on the thread, the next run with --resume has the chat before its
prompt.

With --wait the command ends with the verdict of the turn that has the chat: exit status 0 where it
completed. It is 75 where no turn has the chat: it waits for the next run, or was refused.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow-up", Usage: "when the turn has ended"},
			&cli.BoolFlag{Name: "interrupt", Usage: "at once: the turn is cut off"},
			&cli.BoolFlag{Name: "wait", Usage: "wait for the end of the turn that has the chat, and print its outcome"},
			&cli.BoolFlag{Name: "end", Usage: "in place of TEXT: ask the live run to do what is queued and to end"},
			&cli.StringFlag{Name: "author", EnvVars: []string{"ARBE_AUTHOR_ID"}, Usage: "`AUTHOR` of the chat"},
		},
		Action: p.sayAction,
	}
}

func (p *program) sayAction(c *cli.Context) error {
	cmd, wait, end := p.command(c), c.Bool("wait"), c.Bool("end")
	followUp, interrupt := c.Bool("follow-up"), c.Bool("interrupt")
	deliver := thread.DeliverSteer
	switch {
	case len(cmd.args) < 1:
		return cmdline.Usage("want a thread id")
	case end && (len(cmd.args) > 1 || followUp || interrupt || wait):
		return cmdline.Usage("--end takes no TEXT and no other flag")
	case followUp && interrupt:
		return cmdline.Usage("--follow-up and --interrupt exclude each other")
	case followUp:
		deliver = thread.DeliverFollowUp
	case interrupt:
		deliver = thread.DeliverInterrupt
	}
	text := ""
	if !end {
		var err error
		if text, err = p.sayText(c.Context, cmd.args[1:]); err != nil {
			return err
		}
	}
	cl, err := cmd.writing(c.Context)
	if err != nil {
		return err
	}
	if end {
		return p.sayEnd(c.Context, cl, cmd.author)
	}
	return p.say(c.Context, cl, chatOf(text, deliver, cmd.author), wait)
}

// say posts a chat. With wait it waits for the end of the turn that has it.
func (p *program) say(ctx context.Context, cl *client.Client, chat thread.Entry, wait bool) error {
	w := &launch.Turn{}
	run, next, err := latestRun(ctx, cl, w)
	if err != nil {
		return reachThread(cl, err)
	}
	if _, err := cl.Append(ctx, []thread.Entry{chat}); err != nil {
		return reachThread(cl, err)
	}
	if !wait {
		fmt.Fprintln(p.stdout, chat.ID)
	}
	switch {
	case run.Status != thread.StatusRunning || run.Started != nil && !run.Started.Live:
		why := fmt.Sprintf("no live run is on thread %s: its next run with --resume gets the chat", cl.Thread)
		if wait {
			return cmdline.Fail(launch.StatusNoTurn, "%s", why)
		}
		fmt.Fprintln(p.stderr, why)
		return nil
	case !wait:
		return nil
	}
	w.Of(chat.ID, run.ID)
	return p.awaitTurn(ctx, cl, next, w)
}

// latestRun reads a thread into w. It returns the thread's latest run, and the offset to follow from.
func latestRun(ctx context.Context, cl *client.Client, w *launch.Turn) (thread.Run, string, error) {
	page, err := cl.Only("signal.").Read(ctx, "0", false, func(e thread.Entry) error { w.Add(e); return nil })
	run, _ := w.Fold.Latest()
	return run, page.Next, err
}

// sayText returns the text of a chat.
func (p *program) sayText(ctx context.Context, args []string) (string, error) {
	text := strings.Join(args, " ")
	switch {
	case len(args) == 0:
		return "", cmdline.Usage("want a text, or - to read it from stdin")
	case text == "-":
		in := p.given(ctx, "the text")
		defer in.Close() // what can't be restored is gone
		b, err := io.ReadAll(io.LimitReader(in, thread.MaxEntry+1))
		if err != nil {
			return "", fmt.Errorf("read the text from stdin: %w", err)
		}
		text = string(b)
	}
	switch {
	case strings.TrimSpace(text) == "":
		return "", cmdline.Usage("the text is empty")
	case len(text) > thread.MaxEntry:
		return "", cmdline.Usage("the text has more than %d bytes", thread.MaxEntry)
	}
	return text, nil
}

// sayEnd asks the live run to end.
func (p *program) sayEnd(ctx context.Context, cl *client.Client, author string) error {
	run, _, err := latestRun(ctx, cl, &launch.Turn{})
	switch {
	case err != nil:
		return reachThread(cl, err)
	case run.Status != thread.StatusRunning:
		return cmdline.Fail(1, "no run is running on thread %s", cl.Thread)
	case run.Started != nil && !run.Started.Live:
		const why = "run %s is not live and ends on its own; arbe cancel %s stops it"
		return cmdline.Fail(1, why, run.ID, cl.Thread)
	}
	return p.askToFinish(ctx, cl, run.ID, run.Harness, author)
}

// askToFinish asks a live run to do what is queued and to end.
func (p *program) askToFinish(ctx context.Context, cl *client.Client, run, harness, author string) error {
	_, err := cl.Append(ctx, []thread.Entry{{
		ID: uuid.NewString(), TS: thread.Stamp(time.Now()), AuthorID: author,
		Payload: thread.Marshal(thread.EndRequested{
			Signal: thread.Signal{Type: thread.TypeEnd, RunID: run, Harness: harness},
		}),
	}})
	if err != nil {
		return reachThread(cl, err)
	}
	fmt.Fprintf(p.stderr, "asked run %s to do what is queued and to end\n", run)
	return nil
}

// chatOf returns a new chat.
func chatOf(text, deliver, author string) thread.Entry {
	return thread.Entry{
		ID: uuid.NewString(), TS: thread.Stamp(time.Now()), AuthorID: author,
		Payload: thread.Marshal(thread.Chat{Type: thread.TypeChat, Text: text, Deliver: deliver}),
	}
}

// awaitTurn follows the thread from an offset until the turn that has the chat has ended, or none will have it.
func (p *program) awaitTurn(ctx context.Context, cl *client.Client, offset string, w *launch.Turn) error {
	types := append(session.Harnesses().Types(thread.KindSession), "signal.", thread.TypeChat)
	err := cl.Only(types...).Follow(ctx, offset,
		func(e thread.Entry) error {
			if w.Add(e); w.Over {
				return client.ErrStop
			}
			return nil
		}, nil)
	if err != nil || ctx.Err() != nil {
		return reach(err)
	}
	if w.Why != "" {
		return cmdline.Fail(w.Status, "%s", w.Why)
	}
	fmt.Fprintln(p.stdout, w.Outcome)
	if w.Status != 0 {
		return &cmdline.Exit{Status: w.Status}
	}
	return nil
}
