package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server/houses"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// terminalThreads is how many threads a table has without -n.
const terminalThreads = 50

// listCommand returns the command that lists threads: arbe ls, which is arbe thread list.
func (p *program) listCommand(name string) *cli.Command {
	return &cli.Command{
		Name:  name,
		Usage: "list the threads, newest start first",
		Description: `A terminal gets a table as wide as it is. Its ids are shortened; commands take any unique prefix
of an id. A pipe gets one line for each thread, with tabs between id, status, start, seconds, harness, model, cost in
dollars, and title. Age, time, harness and model are of the latest run, cost and title of the whole thread.

With --database and one of --house, --tag, --pinned and --parent it lists the threads of houses, the newest first, by
name; ★ is a pinned one. A pipe then gets house, name, tags, and "pinned" and "closed", too.

Marks:
  ●  running; yellow: a heartbeat is missing
  ○  running, and waiting for a chat
  !  no answer from the run: three heartbeats are missing
  ✔  completed
  ✘  failed
  -  cancelled
  ·  idle, without a run`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "running", Usage: "list threads whose latest run is open"},
			&cli.BoolFlag{Name: "failed", Usage: "list threads whose latest run has failed; with --running, both"},
			&cli.StringFlag{
				Name: "since", Usage: "list threads whose latest run began within `DURATION`, as 12h or 7d",
			},
			&cli.StringFlag{Name: "harness", Usage: "list threads whose latest run has `HARNESS`"},
			&cli.IntFlag{
				Name: "n", DefaultText: strconv.Itoa(terminalThreads) + " in a table, else all",
				Usage: "list the newest `N` threads; 0 for all",
			},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object for each thread"},
			&cli.BoolFlag{
				Name: "watch", Aliases: []string{"w"},
				Usage: "keep the table up to date; in a pipe, print a line for each change",
			},
			houseFlag(),
			&cli.StringSliceFlag{Name: "tag", Usage: "list threads that have the tag `TAG`; may be repeated"},
			&cli.BoolFlag{Name: "pinned", Usage: "list pinned threads"},
			&cli.StringFlag{Name: "parent", Usage: "list the children of the thread `ID`"},
			databaseFlag(),
		},
		Action: p.listAction,
	}
}

func (p *program) listAction(c *cli.Context) error {
	q := listQuery{
		command: p.command(c), most: -1,
		tags: c.StringSlice("tag"), pinned: c.Bool("pinned"), parent: c.String("parent"),
	}
	watch := c.Bool("watch")
	switch {
	case len(q.args) > 0:
		return cmdline.Usage("%s takes no arguments; arbe thread status ID is about one thread", c.Command.Name)
	case c.Int("n") < 0:
		return cmdline.Usage("-n: want at least 0")
	case c.IsSet("n"):
		q.most = c.Int("n")
	}
	if c.Bool("running") {
		q.filter.Statuses = append(q.filter.Statuses, thread.StatusRunning)
	}
	if c.Bool("failed") {
		q.filter.Statuses = append(q.filter.Statuses, thread.StatusFailed)
	}
	if name := c.String("harness"); name != "" {
		q.filter.Harnesses = []string{name}
	}
	if given := c.String("since"); given != "" {
		d, err := listing.ParseSince(given)
		if err != nil {
			return cmdline.Usage("--since %w", err)
		}
		q.filter.Since = time.Now().Add(-d)
	}
	byRows, err := q.ofHouses(watch)
	if err != nil {
		return err
	}
	cl, err := q.clientOf(token.SubjectThreads, token.ScopeThreads)
	if err != nil {
		return err
	}
	l := client.NewList(cl)
	if watch {
		return reachList(l, q.watch(c.Context, cl))
	}
	out := bufio.NewWriter(p.stdout)
	if byRows {
		err = q.printHouse(c.Context, l, out)
	} else {
		err = q.print(l.Pages(c.Context, q.filter), emptyList(q.filter), out)
	}
	return errors.Join(reachList(l, err), out.Flush())
}

// listQuery selects threads for a list.
type listQuery struct {
	command
	filter client.Filter
	most   int // 0 for all, -1 for as many as a terminal gets

	tags   []string // of the rows of houses, as the next ones
	pinned bool
	parent string
}

// print prints the pages of a list. empty is the message in place of an empty list.
func (q listQuery) print(pages iter.Seq2[client.ListPage, error], empty string, out io.Writer) error {
	table := newTable(q.stdout)
	tabular, most := table.Width > 0 && !q.json, max(0, q.most)
	if q.most < 0 && tabular {
		most = terminalThreads
	}
	var rows []thread.Summary
	var now time.Time
	n, more := 0, false
	for page, err := range pages {
		if err != nil {
			return err
		}
		if most > 0 {
			left := most - n
			more = len(page.Threads) > left || len(page.Threads) == left && page.Cursor != ""
			page.Threads = page.Threads[:min(left, len(page.Threads))]
		}
		n += len(page.Threads)
		if now = page.Now; now.IsZero() {
			now = time.Now()
		}
		for _, v := range page.Threads {
			if tabular {
				rows = append(rows, v)
			} else if err := listing.WriteRow(out, v, now, q.json); err != nil {
				return err
			}
		}
		if more {
			break
		}
	}
	if tabular {
		for _, line := range table.Lines(rows, now) {
			fmt.Fprintln(out, line)
		}
		if more {
			fmt.Fprintln(out, "  older threads are left out: -n 0 lists all")
		}
	}
	if n == 0 {
		fmt.Fprintln(q.stderr, empty)
	}
	return nil
}

// emptyList is the message in place of an empty list.
func emptyList(f client.Filter) string {
	if len(f.Statuses)+len(f.Harnesses) == 0 && f.Since.IsZero() {
		return "no threads yet: arbe run -- TASK starts a run on a new one"
	}
	return "no such threads: arbe ls lists all"
}

// newTable returns a table for w: as wide as the terminal, or as COLUMNS where w is no terminal; 0 for no table.
func newTable(w io.Writer) listing.Table {
	width, terminal := cmdline.Terminal(w)
	if !terminal {
		width, _ = strconv.Atoi(os.Getenv("COLUMNS")) // 0 for no table
		return listing.Table{Width: width}
	}
	if width == 0 {
		width = 80
	}
	return listing.Table{Width: width, Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// ofHouses reports whether a query is about the rows of houses. ARBE_HOUSE alone, which also labels boxes, is not: it
// needs a database.
func (q listQuery) ofHouses(watch bool) (bool, error) {
	selects := len(q.tags) > 0 || q.pinned || q.parent != ""
	switch {
	case q.database == "":
		if selects || q.house != "" && q.house != os.Getenv("ARBE_HOUSE") {
			return false, errNoDatabase()
		}
		return false, nil
	case watch && (selects || q.house != ""):
		return false, cmdline.Usage("--watch is for all threads: want no --house, --tag, --pinned or --parent")
	}
	return selects || q.house != "", nil
}

// printHouse prints the rows of threads with their summaries.
func (q listQuery) printHouse(ctx context.Context, l client.List, out io.Writer) error {
	db, err := openDatabase(ctx, q.database)
	if err != nil {
		return err
	}
	defer db.Close()
	wanted := rows.Query{Statuses: q.filter.Statuses, Tags: q.tags, Pinned: q.pinned, Limit: client.ListLimit}
	if q.house != "" {
		h, err := findHouse(ctx, db.Host(), q.house)
		if err != nil {
			return databaseExit(err)
		}
		wanted.House = h.ID
	}
	if q.parent != "" {
		if wanted.Parent, err = q.resolve(ctx, q.parent, leastPrefix); err != nil {
			return err
		}
	}
	return q.print(rowPages(ctx, db.Host(), wanted, l, q.filter), "no such threads: arbe ls lists all", out)
}

// rowPages returns the pages of a query that a filter lets through, each thread with its summary.
func rowPages(
	ctx context.Context, s control.Scope, q rows.Query, l client.List, f client.Filter,
) iter.Seq2[client.ListPage, error] {
	return func(yield func(client.ListPage, error) bool) {
		for {
			all, err := s.Threads(ctx, q)
			if err != nil {
				yield(client.ListPage{}, databaseExit(err))
				return
			}
			found, err := summaries(ctx, l, all)
			if err != nil {
				yield(client.ListPage{}, err)
				return
			}
			var page client.ListPage
			for _, v := range found {
				if listing.Covers(f, v) {
					page.Threads = append(page.Threads, v)
				}
			}
			if len(all) == q.Limit {
				q.After = all[len(all)-1].Mark()
				page.Cursor = q.After.ID
			}
			if !yield(page, nil) || page.Cursor == "" {
				return
			}
		}
	}
}

// requests is how many summaries are requested at the same time.
const requests = 8

// summaries returns the summaries of rows. One whose log has no entry is idle.
func summaries(ctx context.Context, l client.List, all []rows.Thread) ([]thread.Summary, error) {
	found := make([]thread.Summary, len(all))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(requests)
	for i, t := range all {
		g.Go(func() error {
			v, err := l.Thread(ctx, t.ID)
			if client.NoThread(err) {
				v, err = thread.Summary{ID: t.ID, Status: thread.StatusIdle, StartedAt: thread.Stamp(t.CreatedAt)}, nil
			}
			v.Row = houses.RowOf(t)
			found[i] = v
			return err
		})
	}
	return found, g.Wait()
}
