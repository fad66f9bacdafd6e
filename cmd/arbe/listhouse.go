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
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/host/control"
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
	q := control.Query{
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
	rows := map[string]listing.Row{}
	pages := rowPages(c.Context, db.Host(), q, l, f, rows)
	return p.printList(c, pages, rows, "no such threads: arbe ls lists all", out)
}

// rowPages returns the pages of a query that a filter lets through, each thread with its summary, and puts what is in
// their rows into rows.
func rowPages(
	ctx context.Context, s control.Scope, q control.Query, l thread.List, f thread.Filter, rows map[string]listing.Row,
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
			for i, v := range found {
				if !covered(v, f) {
					continue
				}
				page.Threads = append(page.Threads, v)
				t := all[i]
				rows[t.ID] = listing.Row{
					House: t.House, Name: t.Name, Tags: t.Tags, Pinned: t.PinnedAt != nil,
					Closed: t.Status == control.ThreadClosed,
				}
			}
			if len(all) == q.Limit {
				q.After = all[len(all)-1].ID
				page.Cursor = q.After
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
func summaries(ctx context.Context, l thread.List, rows []control.Thread) ([]thread.Summary, error) {
	all := make([]thread.Summary, len(rows))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(requests)
	for i, t := range rows {
		g.Go(func() (err error) {
			all[i], err = l.Thread(ctx, t.ID)
			if thread.NoThread(err) {
				all[i] = thread.Summary{
					ID: t.ID, Status: thread.StatusIdle, StartedAt: t.CreatedAt.UTC().Format(time.RFC3339),
				}
				err = nil
			}
			return err
		})
	}
	return all, g.Wait()
}
