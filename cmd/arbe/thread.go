package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/token"
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
	row := newRow{command: p.command(c), name: c.String("name"), agent: c.String("agent"), tags: c.StringSlice("tag")}
	owned, err := row.wanted(slices.ContainsFunc([]string{"name", "tag", "agent"}, c.IsSet))
	if err != nil {
		return err
	}
	d, err := row.data()
	if err != nil {
		return err
	}
	awaitServer(c.Context, d)
	cl, err := row.client(id.String(), token.ScopeWrite)
	if err != nil {
		return err
	}
	if owned {
		server, err := cl.Health(c.Context)
		if err != nil {
			return reach(err)
		}
		if err := row.create(c.Context, id.String(), server.Installation); err != nil {
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
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := serverURL(d); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return // the next step reports what is missing
		}
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
	in := p.given(ctx, "entries (NDJSON)", true)
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
		var se *client.StatusError
		if errors.As(err, &se) && len(se.Entries) > 0 {
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
