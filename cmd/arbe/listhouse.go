package main

import (
	"context"
	"io"
	"iter"
	"os"

	"golang.org/x/sync/errgroup"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server/houses"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

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
