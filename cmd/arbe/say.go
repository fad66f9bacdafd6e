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
	"arbe.0sk.ar/runner/host/dispatch"
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
completed. It is 75 where no turn has the chat: it waits for the next run, or was refused.

On a thread of a house without a live run its bots may answer (arbe dispatch): with --wait the command prints
what they answer, on a terminal as it comes, and ends with exit status 0 once all have answered, 1 where one
could not, and 75 where none answers. On a thread that a bot drives a host launches a run for the chat, for
whose turn it waits. Give it the --database: without one it waits only on a thread on which bots were asked
before.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow-up", Usage: "when the turn has ended"},
			&cli.BoolFlag{Name: "interrupt", Usage: "at once: the turn is cut off"},
			&cli.BoolFlag{
				Name: "wait",
				Usage: "wait for the end of the turn that has the chat, and print its outcome; or for bots, and\n" +
					"print their answers",
			},
			&cli.BoolFlag{Name: "end", Usage: "in place of TEXT: ask the live run to do what is queued and to end"},
			&cli.StringFlag{Name: "author", EnvVars: []string{"ARBE_AUTHOR_ID"}, Usage: "`AUTHOR` of the chat"},
			databaseFlag(),
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
	return cmd.say(c.Context, cl, chatOf(text, deliver, cmd.author), text, wait)
}

// say posts a chat with a text. With wait it waits for the end of the turn that has it, or for what bots answer.
func (c command) say(ctx context.Context, cl *client.Client, chat thread.Entry, text string, wait bool) error {
	w := &launch.Turn{}
	latest, err := latestRun(ctx, cl, w)
	if err != nil {
		return reachThread(cl, err)
	}
	var r *room
	if wait && !latest.live {
		h, err := c.host()
		if err == nil {
			r, err = h.room(ctx, cl.Thread)
		}
		if err != nil {
			return err
		}
	}
	if _, err := cl.Append(ctx, []thread.Entry{chat}); err != nil {
		return reachThread(cl, err)
	}
	switch {
	case wait && latest.live:
		w.Of(chat.ID, latest.ID)
		return c.awaitTurn(ctx, cl, latest.next, w)
	case wait:
		return c.sayToBots(ctx, cl, latest, chat, text, r, w)
	}
	fmt.Fprintln(c.stdout, chat.ID)
	if !latest.live && (latest.ID != "" || !latest.decided) {
		fmt.Fprintf(c.stderr, noLiveRun+"\n", cl.Thread)
	}
	return nil
}

// sayToBots waits for what bots answer to a chat on a thread without a live run, or for the turn of the run that a host
// launches for it, unless none would: the rows have that, or, without them, that nobody has decided on the thread so
// far.
func (c command) sayToBots(
	ctx context.Context, cl *client.Client, latest latest, chat thread.Entry, text string, r *room, w *launch.Turn,
) error {
	switch d := r.decides(cl.Thread, chat, text); {
	case d != nil && driven(*d) && len(reacting(*d)) == 0 && d.Depth == 0:
		w.Of(chat.ID, dispatch.RunOf(cl.Thread, chat.ID))
		decided := c.awaitDecision(ctx, cl.Thread)
		defer decided()
		return c.awaitDecidedTurn(ctx, cl, latest.next, w, decided)
	case d == nil && (c.database != "" || !latest.decided), d != nil && driven(*d) && len(reacting(*d)) == 0:
		return cmdline.Fail(launch.StatusNoTurn, noLiveRun, cl.Thread)
	case d != nil && len(reacting(*d)) == 0:
		return cmdline.Fail(launch.StatusNoTurn, "thread %s has the chat, and %s", cl.Thread, r.unanswered(*d))
	}
	return c.awaitAnswers(ctx, cl, latest.next, chat.ID, r)
}

// latest is the state of a thread at its end.
type latest struct {
	thread.Run        // the latest one; without ID where there is none
	live       bool   // it takes chats
	decided    bool   // hosts have decided on a trigger of bots
	next       string // the offset to follow from
}

// latestRun reads a thread into w. It returns the thread's latest run.
func latestRun(ctx context.Context, cl *client.Client, w *launch.Turn) (l latest, err error) {
	page, err := cl.Only("signal.").Read(ctx, "0", false, func(e thread.Entry) error {
		w.Add(e)
		l.decided = l.decided || thread.TypeOf(e.Payload) == thread.TypeDecided
		return nil
	})
	l.Run, _ = w.Fold.Latest()
	l.live = l.Status == thread.StatusRunning && (l.Started == nil || l.Started.Live)
	l.next = page.Next
	return l, err
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
	run, err := latestRun(ctx, cl, &launch.Turn{})
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
	return p.awaitDecidedTurn(ctx, cl, offset, w, func() {})
}

// awaitDecidedTurn is awaitTurn, and calls decided at each decision on a chat.
func (p *program) awaitDecidedTurn(
	ctx context.Context, cl *client.Client, offset string, w *launch.Turn, decided func(),
) error {
	types := append(session.Harnesses().Types(thread.KindSession), "signal.", thread.TypeChat)
	err := cl.Only(types...).Without(thread.TypeDelta).Follow(ctx, offset,
		func(e thread.Entry) error {
			if thread.TypeOf(e.Payload) == thread.TypeDecided {
				decided()
			}
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
