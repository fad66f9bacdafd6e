package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) threadCommand() *cli.Command {
	return &cli.Command{
		Name:  "thread",
		Usage: "create, write, read, watch, copy and delete threads",
		Subcommands: []*cli.Command{
			{
				Name:  "new",
				Usage: "create a thread without entries, and print its id",
				Flags: []cli.Flag{
					houseFlag(),
					&cli.StringFlag{Name: "name", Usage: "`NAME` of the house's thread"},
					&cli.StringSliceFlag{Name: "tag", Usage: "tag the house's thread with `TAG`; may be repeated"},
					&cli.StringFlag{Name: "agent", Usage: "let the bot `AGENT` drive it (default: a chat)"},
					&cli.StringFlag{Name: "with", Usage: "make it a conversation with the bot `AGENT`"},
					databaseFlag(),
				},
				Action: p.threadNew,
			},
			p.setCommand(),
			p.listCommand("list"),
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
			p.tailCommand(),
			p.statusCommand(),
			p.exportCommand(),
			p.importCommand(),
			p.deleteCommand(),
		},
	}
}

func (p *program) threadNew(c *cli.Context) error {
	if c.Args().Present() {
		return cmdline.Usage("thread new takes no arguments")
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	cmd := p.command(c)
	owned, err := cmd.wantsRow(slices.ContainsFunc([]string{"name", "tag", "agent", "with"}, c.IsSet))
	if err != nil {
		return err
	}
	d, err := cmd.data()
	if err != nil {
		return err
	}
	awaitServer(c.Context, d)
	cl, err := cmd.client(id.String(), token.ScopeWrite)
	if err != nil {
		return err
	}
	if owned {
		server, err := cl.Health(c.Context)
		if err != nil {
			return reach(err)
		}
		row := rows.NewThread{ID: id.String(), Name: c.String("name"), Tags: c.StringSlice("tag")}
		if err := cmd.createRow(c.Context, server.Installation, row, c.String("agent"), c.String("with")); err != nil {
			return err
		}
	}
	if err := cl.Create(c.Context); err != nil {
		return reachThread(cl, err)
	}
	fmt.Fprintln(p.stdout, id)
	return nil
}

// serverStart bounds the wait for a server on this machine that is starting, as in: arbe serve & arbe thread new.
const serverStart = 3 * time.Second

// awaitServer waits a moment for the address of a server on this machine.
func awaitServer(ctx context.Context, d daemon.Data) {
	ctx, cancel := context.WithTimeout(ctx, serverStart)
	defer cancel()
	_, err := serverURL(d)
	for err != nil && pause.For(ctx, 20*time.Millisecond) {
		_, err = serverURL(d) // the next step reports what is missing
	}
}

func (p *program) threadPost(c *cli.Context) error {
	if c.NArg() < 1 {
		return cmdline.Usage("want a thread id")
	}
	cmd := p.command(c)
	cl, err := cmd.writing(c.Context)
	if err != nil {
		return err
	}
	if c.NArg() > 1 {
		return p.post(c.Context, cl, []thread.Entry{chatOf(strings.Join(cmd.args[1:], " "), "", cmd.author)})
	}
	return p.postLines(c.Context, cl)
}

// postLines posts the entries on stdin.
func (p *program) postLines(ctx context.Context, cl *client.Client) error {
	in := p.given(ctx, "entries (NDJSON)")
	defer in.Close() // what can't be restored is gone
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, thread.MaxEntry+64<<10)
	var batch []thread.Entry
	size, n := 0, 0
	for lines.Scan() && lines.Err() == nil { // a read that fails leaves a part of a line
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		e, err := thread.ParseEntry(lines.Bytes())
		if err != nil {
			return cmdline.Usage("stdin line %d: %w", n, err)
		}
		if batch = append(batch, e); len(batch) == thread.MaxEntries || size > thread.MaxEntry {
			if err := p.post(ctx, cl, batch); err != nil {
				return err
			}
			batch, size = nil, 0
		}
		size += len(e.Payload)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read stdin, line %d: %w", n+1, err)
	}
	return p.post(ctx, cl, batch)
}

func (p *program) post(ctx context.Context, cl *client.Client, entries []thread.Entry) error {
	if _, err := cl.Append(ctx, entries); err != nil {
		if se, is := errors.AsType[*client.StatusError](err); is && len(se.Entries) > 0 {
			err = fmt.Errorf("%w (%s: %s)", err, se.Entries[0].ID, se.Entries[0].Reason)
		}
		return reachThread(cl, err)
	}
	for _, e := range entries {
		fmt.Fprintln(p.stdout, e.ID)
	}
	return nil
}

func (p *program) threadRead(c *cli.Context) error {
	cl, err := p.command(c).reading(c.Context)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(p.stdout)
	_, err = cl.Read(c.Context, "0", false, func(e thread.Entry) error { return printEntry(out, e) })
	return errors.Join(reachThread(cl, err), out.Flush())
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

// wantsRow reports whether a new thread is to be a house's. described is set where more than the house is typed.
func (c command) wantsRow(described bool) (bool, error) {
	switch {
	case c.house == "" && described:
		return false, cmdline.Usage("--name, --tag, --agent and --with need --house")
	case c.database == "" && (described || c.house != os.Getenv("ARBE_HOUSE")):
		return false, errNoDatabase()
	}
	return c.house != "" && c.database != "", nil
}

// createRow makes the row of a thread on the log with this id, for the agents that a person has typed, if any. It comes
// before the thread's entries: what a crash leaves is a row without any.
func (c command) createRow(ctx context.Context, log string, n rows.NewThread, agent, with string) error {
	db, err := openDatabase(ctx, c.database)
	if err != nil {
		return err
	}
	defer db.Close()
	s := db.Of(log).Host()
	h, err := findHouse(ctx, s, c.house)
	if err != nil {
		return databaseExit(err)
	}
	n.House = h.ID
	for _, typed := range []struct {
		name string
		id   *string
	}{{agent, &n.Agent}, {with, &n.ParentAgent}} {
		if typed.name == "" {
			continue
		}
		a, err := findAgent(ctx, s, typed.name)
		if err != nil {
			return databaseExit(err)
		}
		*typed.id = a.ID
	}
	_, err = s.CreateThread(ctx, n)
	return databaseExit(err)
}

func (p *program) setCommand() *cli.Command {
	return rowsCommand(cli.Command{
		Name: "set", ArgsUsage: "ID", Usage: "change a thread's name, pin and tags in its house, and close a chat",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Usage: "name the thread `NAME`; \"\" for no name"},
			&cli.BoolFlag{Name: "pin", Usage: "pin the thread"},
			&cli.BoolFlag{Name: "unpin", Usage: "unpin the thread"},
			&cli.StringSliceFlag{Name: "tag", Usage: "add the tag `TAG`; may be repeated"},
			&cli.StringSliceFlag{Name: "untag", Usage: "remove the tag `TAG`; may be repeated"},
			&cli.BoolFlag{Name: "close", Usage: "close a chat: members post nothing more"},
			&cli.BoolFlag{Name: "open", Usage: "open a closed chat"},
		},
	}, p.setThread)
}

func (p *program) setThread(c *cli.Context, s control.Scope) error {
	for _, both := range [][2]string{{"pin", "unpin"}, {"close", "open"}} {
		if c.Bool(both[0]) && c.Bool(both[1]) {
			return cmdline.Usage("--%s and --%s exclude each other", both[0], both[1])
		}
	}
	if !slices.ContainsFunc([]string{"name", "pin", "unpin", "tag", "untag", "close", "open"}, c.IsSet) {
		return cmdline.Usage("want what to change")
	}
	id, err := p.command(c).toChange(c.Context, c.Args().First())
	if err != nil {
		return err
	}
	change := rows.ThreadChange{AddTags: c.StringSlice("tag"), RemoveTags: c.StringSlice("untag")}
	if c.IsSet("name") {
		name := c.String("name")
		change.Name = &name
	}
	if yes := c.Bool("pin"); yes || c.Bool("unpin") {
		change.Pinned = &yes
	}
	if yes := c.Bool("close"); yes || c.Bool("open") {
		change.Closed = &yes
	}
	_, err = s.ChangeThread(c.Context, id, change)
	if change.Closed != nil && errors.Is(err, rows.ErrInvalid) {
		err = fmt.Errorf("thread %s: %w: an agent drives it, and only chats are closed", id, rows.ErrInvalid)
	}
	if errors.Is(err, rows.ErrAbsent) {
		const text = "no such thread of a house: %s; arbe ls --house HOUSE lists them"
		return cmdline.Fail(exitNoThread, text, id)
	}
	return err
}
