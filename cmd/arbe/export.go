package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/page"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) exportCommand() *cli.Command {
	return &cli.Command{
		Name:      "export",
		Usage:     "print a thread as NDJSON for arbe thread import, with a summary on stderr, or as an HTML page",
		ArgsUsage: "ID",
		Description: `Each line is one entry as the log has it, with the time of its receipt (at). The summary
has the number of entries and a SHA-256 over their lines without that time. An import prints the same summary.

With --html the output is one file for people, as arbe serve's page shows the thread. It has its images in it,
runs no script and asks no server for anything. With --database members of the thread's house, and the threads from
which bots have posted, stand in it by their names.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "html", Usage: "export a page for browsers, one file without a script"},
			&cli.StringFlag{
				Name:      "out",
				Usage:     "write `FILE`, whole or not at all, - for stdout (the default)",
				TakesFile: true,
			},
			&cli.BoolFlag{Name: "force", Usage: "replace a FILE that exists"},
			databaseFlag(),
		},
		Action: p.exportAction,
	}
}

func (p *program) exportAction(c *cli.Context) error {
	cmd := p.command(c)
	id, err := cmd.one(c.Context)
	if err != nil {
		return err
	}
	out := c.String("out")
	if out == "-" {
		out = ""
	}
	if out != "" && !c.Bool("force") {
		if _, err := os.Lstat(out); err == nil {
			return cmdline.Usage("--out %s exists; --force replaces it", out)
		}
	}
	cl, err := cmd.client(id, token.ScopeRead)
	if err != nil {
		return err
	}
	export := exportLines
	if c.Bool("html") {
		o := others{cmd, cmd.opened()}
		names := p.names(c.Context, o.rows, id)
		export = func(ctx context.Context, cl *client.Client, w io.Writer) (string, error) {
			return exportHTML(ctx, cl, w, names, o)
		}
	}
	summary := ""
	write := func(w io.Writer) error {
		buffered := bufio.NewWriterSize(w, 64<<10)
		var err error
		summary, err = export(c.Context, cl, buffered)
		if writeErr := buffered.Flush(); writeErr != nil {
			return writeErr
		}
		return err
	}
	if out == "" {
		err = write(p.stdout)
	} else {
		err = durable.Create(out, write)
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(p.stderr, summary)
	return nil
}

// exportLines writes a thread as NDJSON, and returns its summary.
func exportLines(ctx context.Context, cl *client.Client, w io.Writer) (string, error) {
	sum := newSummary()
	_, err := cl.Read(ctx, "0", false, func(e thread.Entry) error {
		sum.add(e)
		return printEntry(w, e)
	})
	return fmt.Sprintf("%d entries, sha256 %x", sum.n, sum.hash.Sum(nil)), exportError(cl, sum.n, err)
}

// exportHTML writes a thread as a page, and returns its summary.
func exportHTML(
	ctx context.Context, cl *client.Client, w io.Writer, name func(string) string, o others,
) (string, error) {
	s, err := see(ctx, cl, false)
	if err != nil {
		return "", reachThread(cl, err)
	}
	x, err := page.NewExport(w, s.Summary, session.Harnesses(), s.now)
	if err != nil {
		return "", err
	}
	x.Name = name
	x.Other = func(id string) (thread.Summary, bool) { return o.other(ctx, id) }
	n := 0
	_, err = cl.Read(ctx, "0", false, func(e thread.Entry) error {
		n++
		return x.Add(e)
	})
	if err = exportError(cl, n, err); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d entries", n), x.Close()
}

// exportError returns the error of an export that ended after n entries.
func exportError(cl *client.Client, n int, err error) error {
	switch {
	case err == nil:
		return nil
	case n == 0:
		return reachThread(cl, err)
	}
	return cmdline.Fail(exitNoReach, "%w; %d entries are exported", err, n)
}

// summary is equal for two servers that have the same entries in the same order.
type summary struct {
	n    int
	hash hash.Hash
	buf  []byte
}

func newSummary() *summary { return &summary{hash: sha256.New()} }

func (s *summary) add(e thread.Entry) {
	s.n++
	s.buf = append(e.AppendJSON(s.buf[:0]), '\n')
	_, _ = s.hash.Write(s.buf) // a hash takes anything
}

func (p *program) importCommand() *cli.Command {
	return &cli.Command{
		Name:      "import",
		Usage:     "post the output of arbe thread export, from FILE or stdin",
		ArgsUsage: "ID [FILE]",
		Description: `Entries that the thread has already stay as they are, so an import that was interrupted
can be repeated. This server sets the time of receipt (at) of the others. If the import is complete, the summary
on stderr has the SHA-256 of the export.`,
		Action: p.importAction,
	}
}

func (p *program) importAction(c *cli.Context) error {
	if c.NArg() < 1 || c.NArg() > 2 {
		return cmdline.Usage("want a thread id, and a file at most")
	}
	cl, err := p.command(c).writing(c.Context)
	if err != nil {
		return err
	}
	i := &importing{client: cl, name: "stdin", sum: newSummary()}
	file := cmp.Or(c.Args().Get(1), "-")
	if file != "-" {
		i.name = file
	}
	in, err := p.open(c.Context, file, "an export (NDJSON)")
	if err != nil {
		return err
	}
	defer in.Close() // it was only read
	if err := i.all(c.Context, in); err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "%d entries, %d new, sha256 %x\n", i.sum.n, i.fresh, i.sum.hash.Sum(nil))
	return nil
}

// importing is an import under way.
type importing struct {
	client *client.Client
	name   string // of the file
	sum    *summary
	fresh  int // entries that the server did not have

	batch []thread.Entry // to be posted next
	lines []int          // their numbers in the file
	size  int
}

// importBatch is the size of one post in bytes. One entry may exceed it.
const importBatch = 8 << 20

func (i *importing) all(ctx context.Context, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, thread.MaxEntry+64<<10)
	n := 0
	for lines.Scan() && lines.Err() == nil { // a read that fails leaves a part of a line
		n++
		e, err := thread.ParseEntry(lines.Bytes())
		switch {
		case len(bytes.TrimSpace(lines.Bytes())) == 0:
			return cmdline.Usage("%s line %d is empty: want the output of arbe thread export", i.name, n)
		case err != nil:
			return cmdline.Usage("%s line %d: %w", i.name, n, err)
		}
		i.sum.add(e)
		i.batch, i.lines, i.size = append(i.batch, e), append(i.lines, n), i.size+len(e.Payload)
		if len(i.batch) == thread.MaxEntries || i.size > importBatch {
			if err := i.post(ctx); err != nil {
				return err
			}
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return cmdline.Usage("%s line %d is longer than an entry may be (%d bytes)", i.name, n+1, thread.MaxEntry)
	case err != nil:
		return fmt.Errorf("read %s, line %d: %w", i.name, n+1, err)
	case n == 0:
		return cmdline.Usage("%s has no entries", i.name)
	}
	return i.post(ctx)
}

func (i *importing) post(ctx context.Context) error {
	if len(i.batch) == 0 {
		return nil
	}
	ack, err := i.client.Append(ctx, i.batch)
	if client.Gone(err) {
		return reachThread(i.client, err)
	}
	if err != nil {
		where := fmt.Sprintf("lines %d to %d", i.lines[0], i.lines[len(i.lines)-1])
		se, _ := errors.AsType[*client.StatusError](err)
		if se != nil && len(se.Entries) > 0 && se.Entries[0].Index < len(i.lines) {
			bad := se.Entries[0]
			where = fmt.Sprintf("line %d, %s: %s", i.lines[bad.Index], bad.ID, bad.Reason)
		}
		return cmdline.Fail(exitNoReach, "%w (%s %s)", err, i.name, where)
	}
	i.fresh += len(i.batch) - ack.Duplicates
	i.batch, i.lines, i.size = i.batch[:0], i.lines[:0], 0
	return nil
}

// writeSession writes the session of a thread's last run as a file of a harness, for the page's Config.
func writeSession(w io.Writer, harness string, entries iter.Seq2[thread.Entry, error]) (err error) {
	d, ok := session.Harnesses().Named(harness)
	if !ok {
		return page.ErrNoSession
	}
	id, err := uuid.NewV7() // of a session that has none yet
	if err != nil {
		return err
	}
	r := &hydrate.Rebuilder{Dialect: d, TempDir: os.TempDir(), DefaultCwd: "/", Amend: true}
	defer func() { err = errors.Join(err, r.Close()) }()
	for e, err := range entries {
		if err != nil {
			return err
		}
		if err := r.Add(hydrate.Parse(e, d)); err != nil {
			return err
		}
	}
	_, err = r.Copy(w, id.String(), time.Now())
	if errors.Is(err, hydrate.ErrNoSession) {
		return page.ErrNoSession
	}
	return err
}
