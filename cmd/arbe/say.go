package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// statusNoTurn is the exit status of say --wait where no turn of an agent has the chat.
const statusNoTurn = 75

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
	text, err := p.sayText(c)
	if err != nil {
		return err
	}
	id, err := p.toChange(c, c.Args().First())
	if err != nil {
		return err
	}
	client, err := p.client(c, id, token.ScopeWrite)
	if err != nil {
		return err
	}
	w := &turnWait{}
	page, err := client.Only("signal.").Read(c.Context, "0", false, func(e thread.Entry) error { w.add(e); return nil })
	if err != nil {
		return reachThread(client, err)
	}
	run, running := w.fold.Latest()
	running = running && run.Status == thread.StatusRunning
	if c.Bool("end") {
		return p.sayEnd(c, client, run, running)
	}
	chat := chatOf(text, deliverOf(c), c.String("author"))
	if _, err := client.Append(c.Context, []thread.Entry{chat}); err != nil {
		return reachThread(client, err)
	}
	if !c.Bool("wait") {
		fmt.Fprintln(p.stdout, chat.ID)
	}
	switch {
	case !running || run.Started != nil && !run.Started.Live:
		why := fmt.Sprintf("no live run is on thread %s: its next run with --resume gets the chat", id)
		if c.Bool("wait") {
			return &cmdline.Exit{Status: statusNoTurn, Cause: fmt.Errorf("%s", why)}
		}
		fmt.Fprintln(p.stderr, why)
		return nil
	case !c.Bool("wait"):
		return nil
	}
	w.chat, w.run = chat.ID, run.ID
	return p.awaitTurn(c.Context, client, page.Next, w)
}

// sayText returns the text of the chat; "" with --end.
func (p *program) sayText(c *cli.Context) (string, error) {
	help := c.Command.HelpName
	switch {
	case c.NArg() < 1:
		return "", cmdline.Usage("want a thread id; see %s --help", help)
	case c.Bool("end") && (c.NArg() > 1 || c.Bool("follow-up") || c.Bool("interrupt") || c.Bool("wait")):
		return "", cmdline.Usage("--end takes no TEXT and no other flag; see %s --help", help)
	case c.Bool("end"):
		return "", nil
	case c.Bool("follow-up") && c.Bool("interrupt"):
		return "", cmdline.Usage("--follow-up and --interrupt exclude each other; see %s --help", help)
	case c.NArg() < 2:
		return "", cmdline.Usage("want a text, or - to read it from stdin; see %s --help", help)
	}
	text := strings.Join(c.Args().Tail(), " ")
	if text == "-" {
		in := p.given(c.Context, "the text", true)
		defer in.Close() // what can't be restored is gone
		b, err := io.ReadAll(io.LimitReader(in, thread.MaxEntry+1))
		if err != nil {
			return "", fmt.Errorf("read the text from stdin: %w", err)
		}
		text = string(b)
	}
	if strings.TrimSpace(text) == "" {
		return "", cmdline.Usage("the text is empty")
	}
	if len(text) > thread.MaxEntry {
		return "", cmdline.Usage("the text has more than %d bytes", thread.MaxEntry)
	}
	return text, nil
}

func deliverOf(c *cli.Context) string {
	switch {
	case c.Bool("follow-up"):
		return thread.DeliverFollowUp
	case c.Bool("interrupt"):
		return thread.DeliverInterrupt
	}
	return thread.DeliverSteer
}

// sayEnd asks the live run to end.
func (p *program) sayEnd(c *cli.Context, client *thread.Client, run thread.Run, running bool) error {
	switch {
	case !running:
		return &cmdline.Exit{Status: 1, Cause: fmt.Errorf("no run is running on thread %s", client.Thread)}
	case run.Started != nil && !run.Started.Live:
		const why = "run %s is not live and ends on its own; arbe cancel %s stops it"
		return &cmdline.Exit{Status: 1, Cause: fmt.Errorf(why, run.ID, client.Thread)}
	}
	return p.askToFinish(c.Context, client, run.ID, run.Harness, c.String("author"))
}

// askToFinish asks a live run to do what is queued and to end.
func (p *program) askToFinish(ctx context.Context, client *thread.Client, run, harness, author string) error {
	_, err := client.Append(ctx, []thread.Entry{{
		ID: uuid.NewString(), TS: thread.Stamp(time.Now()), AuthorID: author,
		Payload: thread.Marshal(thread.EndRequested{
			Signal: thread.Signal{Type: thread.TypeEnd, RunID: run, Harness: harness},
		}),
	}})
	if err != nil {
		return reachThread(client, err)
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
func (p *program) awaitTurn(ctx context.Context, client *thread.Client, offset string, w *turnWait) error {
	types := append(session.Harnesses().Types(thread.KindSession), "signal.", thread.TypeChat)
	err := client.Only(types...).Follow(ctx, offset,
		func(e thread.Entry) error {
			if w.add(e); w.over {
				return thread.ErrStop
			}
			return nil
		}, nil)
	if err != nil || ctx.Err() != nil {
		return reach(err)
	}
	if w.why != "" {
		return &cmdline.Exit{Status: w.status, Cause: fmt.Errorf("%s", w.why)}
	}
	fmt.Fprintln(p.stdout, w.outcome)
	if w.status != 0 {
		return &cmdline.Exit{Status: w.status}
	}
	return nil
}

// turnWait waits for the end of the turn that has a chat. Its fold has the thread up to the chat.
type turnWait struct {
	chat, run string // "" while the thread is read up to the chat

	fold      thread.Fold
	delivered bool

	over    bool
	status  int    // exit status
	outcome string // of the turn
	why     string // why the turn has no outcome; "" if it has one
}

// add adds the thread's next entry.
func (w *turnWait) add(e thread.Entry) {
	sig, err := thread.Scan(e.Payload)
	if err != nil {
		return
	}
	w.fold.AddScanned(sig, e)
	if w.chat == "" || w.over {
		return
	}
	switch {
	case sig.Type == thread.TypeWaiting:
		var p thread.Waiting
		if json.Unmarshal(e.Payload, &p) == nil && slices.Contains(p.Chats, w.chat) {
			w.over, w.outcome = true, p.Outcome
			if p.Outcome != string(outcome.Completed) {
				w.status = 1
			}
			return
		}
	case sig.Type == thread.TypeRefused:
		var p thread.ChatRefused
		if json.Unmarshal(e.Payload, &p) == nil && p.Chat == w.chat {
			w.over, w.status, w.why = true, statusNoTurn, "the chat was refused: "+p.Reason
			return
		}
	case !sig.Signal():
		p, _ := thread.ParseMirrored(e.Payload)
		w.delivered = w.delivered || p.Names() && slices.Contains(p.Named(), w.chat)
	}
	run, _ := w.fold.Run(w.run)
	switch {
	case run.Status == thread.StatusRunning:
	case w.delivered:
		w.over, w.outcome, w.status = true, run.Status, launch.ExitStatus(&w.fold, w.run)
	default:
		w.over, w.status = true, statusNoTurn
		w.why = fmt.Sprintf("run %s ended before its agent had the chat: the next run with --resume gets it", w.run)
	}
}
