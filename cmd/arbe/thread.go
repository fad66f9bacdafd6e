package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

func (p *program) threadCommand() *cli.Command {
	return &cli.Command{
		Name:  "thread",
		Usage: "create, write, read, watch, copy and delete threads",
		Subcommands: []*cli.Command{
			{
				Name:   "new",
				Usage:  "print the id of a new thread",
				Action: p.threadNew,
			},
			{
				Name:      "post",
				Usage:     "post a chat, or entries from stdin (NDJSON), and print the entries' ids",
				ArgsUsage: "ID [--] [TEXT]",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "author", EnvVars: []string{"ARBE_AUTHOR_ID"}, Usage: "`AUTHOR` of the chat"},
				},
				Action: p.threadPost,
			},
			{
				Name:      "read",
				Usage:     "print a thread's entries, NDJSON",
				ArgsUsage: "ID",
				Action:    p.threadRead,
			},
			{
				Name:      "tail",
				Usage:     "show a thread for people, live, until its run has ended",
				ArgsUsage: "ID",
				Flags: []cli.Flag{
					&cli.BoolFlag{
						Name:    "follow",
						Aliases: []string{"f"},
						Usage:   "keep following after the run's end",
					},
					&cli.BoolFlag{Name: "no-wait", Usage: "show the present entries and exit"},
					&cli.BoolFlag{Name: "full", Usage: "show long outputs whole"},
					&cli.BoolFlag{Name: "json", Usage: "print the entries as NDJSON"},
				},
				Action: p.threadTail,
			},
			{
				Name:      "status",
				Usage:     "print a thread's status: idle, running, completed, failed or cancelled",
				ArgsUsage: "ID",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "json", Usage: "print one JSON object with the thread's runs"},
				},
				Action: p.threadStatus,
			},
			p.exportCommand(),
			p.importCommand(),
			p.deleteCommand(),
		},
	}
}

// one returns the command's only argument, a thread's id.
func one(c *cli.Context) (string, error) {
	if c.NArg() != 1 {
		return "", cmdline.Usage("want one thread id; see %s --help", c.Command.HelpName)
	}
	return c.Args().First(), nil
}

func (p *program) threadNew(c *cli.Context) error {
	if c.Args().Present() {
		return cmdline.Usage("thread new takes no arguments")
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	fmt.Fprintln(p.stdout, id)
	return nil
}

func (p *program) threadPost(c *cli.Context) error {
	if c.NArg() < 1 {
		return cmdline.Usage("want a thread id; see %s --help", c.Command.HelpName)
	}
	client, err := p.client(c, c.Args().First(), token.ScopeWrite)
	if err != nil {
		return err
	}
	if c.NArg() > 1 {
		text := strings.Join(c.Args().Tail(), " ")
		return p.post(c.Context, client, []thread.Entry{{
			ID: uuid.NewString(), TS: thread.Stamp(time.Now()), AuthorID: c.String("author"),
			Payload: thread.Marshal(thread.Chat{Type: thread.TypeChat, Text: text}),
		}})
	}
	lines := bufio.NewScanner(p.stdin)
	lines.Buffer(nil, thread.MaxEntry+64<<10)
	var batch []thread.Entry
	size, n := 0, 0
	for lines.Scan() {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		e, err := thread.ParseEntry(lines.Bytes())
		if err != nil {
			return cmdline.Usage("stdin line %d: %w", n, err)
		}
		if batch = append(batch, e); len(batch) == thread.MaxEntries || size > thread.MaxEntry {
			if err := p.post(c.Context, client, batch); err != nil {
				return err
			}
			batch, size = nil, 0
		}
		size += len(e.Payload)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read stdin, line %d: %w", n+1, err)
	}
	return p.post(c.Context, client, batch)
}

func (p *program) post(ctx context.Context, client *thread.Client, entries []thread.Entry) error {
	if _, err := client.Append(ctx, entries); err != nil {
		var se *thread.StatusError
		if errors.As(err, &se) && len(se.Entries) > 0 {
			err = fmt.Errorf("%w (%s: %s)", err, se.Entries[0].ID, se.Entries[0].Reason)
		}
		return reach(err)
	}
	for _, e := range entries {
		fmt.Fprintln(p.stdout, e.ID)
	}
	return nil
}

// reach gives an error of the thread server its exit status.
func reach(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil // the user ended it
	}
	return &cmdline.Exit{Status: exitNoReach, Cause: err}
}

func (p *program) threadRead(c *cli.Context) error {
	id, err := one(c)
	if err != nil {
		return err
	}
	client, err := p.client(c, id, token.ScopeRead)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(p.stdout)
	_, err = client.Read(c.Context, "0", false, func(e thread.Entry) error { return printEntry(out, e) })
	return errors.Join(reach(err), out.Flush())
}

// printEntry writes an entry as the server returns it.
func printEntry(w io.Writer, e thread.Entry) error {
	b := e.AppendJSON(nil)
	if e.At != "" {
		b = append(append(append(b[:len(b)-1], `,"at":"`...), e.At...), `"}`...)
	}
	_, err := w.Write(append(b, '\n'))
	return err
}

func (p *program) threadStatus(c *cli.Context) error {
	id, err := one(c)
	if err != nil {
		return err
	}
	client, err := p.client(c, id, token.ScopeRead)
	if err != nil {
		return err
	}
	if !c.Bool("json") {
		v, err := client.Summary(c.Context)
		switch {
		case err == nil:
			fmt.Fprintln(p.stdout, v.Status)
			return nil
		case thread.NotFound(err) && !errors.Is(err, thread.ErrNoSummary):
			fmt.Fprintln(p.stdout, thread.StatusIdle)
			return nil
		case !errors.Is(err, thread.ErrNoSummary):
			return reach(err)
		}
	}
	var fold thread.Fold
	_, err = client.Read(c.Context, "0", false, func(e thread.Entry) error { fold.Add(e); return nil })
	if err != nil && !thread.NotFound(err) {
		return reach(err)
	}
	if !c.Bool("json") {
		fmt.Fprintln(p.stdout, fold.Status())
		return nil
	}
	type jsonRun struct {
		RunID       string           `json:"runId"`
		Harness     string           `json:"harness"`
		Status      string           `json:"status"`
		Provisional bool             `json:"provisional"` // posted by a host; the runner's own end replaces it
		LastSignal  string           `json:"lastSignalAt"`
		Cause       *thread.Failed   `json:"cause,omitempty"`
		Orphaned    *thread.Orphaned `json:"orphaned,omitempty"`
		Totals      *thread.Totals   `json:"totals,omitempty"`
		Sandbox     *thread.Sandbox  `json:"sandbox,omitempty"`
	}
	runs := []jsonRun{}
	for _, r := range fold.Runs() {
		runs = append(
			runs,
			jsonRun{
				r.ID,
				r.Harness,
				r.Status,
				r.Provisional,
				thread.Stamp(r.LastSignal),
				r.Cause,
				r.Orphaned,
				r.Totals,
				r.Sandbox,
			},
		)
	}
	enc := json.NewEncoder(p.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		ThreadID string    `json:"threadId"`
		Status   string    `json:"status"`
		Runs     []jsonRun `json:"runs"`
	}{id, fold.Status(), runs})
}

func (p *program) threadTail(c *cli.Context) error {
	id, err := one(c)
	if err != nil {
		return err
	}
	client, err := p.client(c, id, token.ScopeRead)
	if err != nil {
		return err
	}
	show := p.show(c.Bool("full"))
	if c.Bool("json") {
		show = func(e thread.Entry) error { return printEntry(p.stdout, e) }
	}
	var fold thread.Fold
	each := func(e thread.Entry) error {
		fold.Add(e)
		return show(e)
	}
	if c.Bool("no-wait") {
		_, err := client.Read(c.Context, "0", false, each)
		return reach(err)
	}
	return reach(client.Follow(c.Context, "0", each, func() bool {
		r, any := fold.Latest()
		return any && r.Status != thread.StatusRunning && !c.Bool("follow")
	}))
}

// show returns a func that shows a thread's entries on the terminal.
func (p *program) show(full bool) func(thread.Entry) error {
	width, terminal := cmdline.Terminal(p.stdout)
	if !terminal {
		width, _ = strconv.Atoi(os.Getenv("COLUMNS")) // 0 for the default
	}
	return newView(p.stdout, viewOptions{
		live: terminal, color: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		full: full, width: width,
	}).entry
}
