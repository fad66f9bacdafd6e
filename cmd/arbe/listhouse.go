package main

import (
	"context"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server/houses"
	"arbe.0sk.ar/runner/thread"
)

// ofHouses reports whether a command line is about the rows of houses. ARBE_HOUSE alone, which also labels boxes, is
// not: it needs a database.
func ofHouses(c *cli.Context) (bool, error) {
	house := c.String("house")
	selects := len(c.StringSlice("tag")) > 0 || c.Bool("pinned") || c.String("parent") != ""
	switch {
	case c.String("database") == "":
		if selects || house != "" && house != os.Getenv("ARBE_HOUSE") {
			return false, errNoDatabase()
		}
		return false, nil
	case c.Bool("watch") && (selects || house != ""):
		return false, cmdline.Usage("--watch is for all threads: want no --house, --tag, --pinned or --parent")
	}
	return selects || house != "", nil
}

// listHouse prints the rows of threads with what the server has of them.
func (p *program) listHouse(c *cli.Context, l thread.List, f thread.Filter, out io.Writer) error {
	db, err := openDatabase(c)
	if err != nil {
		return err
	}
	defer db.Close()
	q := rows.Query{
		Statuses: f.Statuses, Tags: c.StringSlice("tag"), Pinned: c.Bool("pinned"), Limit: thread.ListLimit,
	}
	if name := c.String("house"); name != "" {
		h, err := findHouse(c, db.Host(), name)
		if err != nil {
			return databaseExit(err)
		}
		q.House = h.ID
	}
	if parent := c.String("parent"); parent != "" {
		if q.Parent, err = p.resolve(c, parent, leastPrefix); err != nil {
			return err
		}
	}
	pages := rowPages(c.Context, db.Host(), q, l, f)
	return p.printList(c, pages, "no such threads: arbe ls lists all", out)
}

// rowPages returns the pages of a query that a filter lets through, each thread with its summary.
func rowPages(
	ctx context.Context, s control.Scope, q rows.Query, l thread.List, f thread.Filter,
) iter.Seq2[thread.ListPage, error] {
	return func(yield func(thread.ListPage, error) bool) {
		for {
			all, err := s.Threads(ctx, q)
			if err != nil {
				yield(thread.ListPage{}, databaseExit(err))
				return
			}
			found, err := summaries(ctx, l, all)
			if err != nil {
				yield(thread.ListPage{}, err)
				return
			}
			var page thread.ListPage
			for _, v := range found {
				if covered(v, f) {
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

// covered reports whether a filter covers a thread, whose status the query has selected.
func covered(v thread.Summary, f thread.Filter) bool {
	began, err := time.Parse(time.RFC3339, v.StartedAt)
	return (len(f.Harnesses) == 0 || slices.Contains(f.Harnesses, v.Harness)) &&
		(f.Since.IsZero() || err == nil && !began.Before(f.Since))
}

// requests is how many summaries are requested at the same time.
const requests = 8

// summaries returns the summaries of rows. One whose log has no entry is idle.
func summaries(ctx context.Context, l thread.List, all []rows.Thread) ([]thread.Summary, error) {
	found := make([]thread.Summary, len(all))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(requests)
	for i, t := range all {
		g.Go(func() error {
			v, err := l.Thread(ctx, t.ID)
			if thread.NoThread(err) {
				v, err = thread.Summary{ID: t.ID, Status: thread.StatusIdle, StartedAt: thread.Stamp(t.CreatedAt)}, nil
			}
			v.Row = houses.RowOf(t)
			found[i] = v
			return err
		})
	}
	return found, g.Wait()
}
