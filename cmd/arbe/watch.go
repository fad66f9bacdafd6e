package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/thread"
)

// board is a watched list: its threads, and what was printed of them.
type board struct {
	filter  thread.Filter
	limit   int
	rows    map[string]thread.Summary
	skew    time.Duration // of the server's clock
	printed map[string]string
}

// mostBoard bounds the threads of a board.
const mostBoard = 1000

// replace takes the page with which a connection begins. gone are the threads that are no longer in it.
func (b *board) replace(page thread.ListPage) (gone []string) {
	if !page.Now.IsZero() {
		b.skew = time.Until(page.Now)
	}
	oldest := ""
	if len(page.Threads) >= b.limit { // older ones may have no place in it
		oldest = page.Threads[len(page.Threads)-1].StartedAt
	}
	in := map[string]bool{}
	for _, v := range page.Threads {
		in[v.ID] = true
		b.rows[v.ID] = v
	}
	for id, v := range b.rows {
		if !in[id] && v.StartedAt >= oldest {
			delete(b.rows, id)
			gone = append(gone, id)
		}
	}
	slices.Sort(gone)
	return gone
}

// change takes a change, and reports whether the thread is on the board now.
func (b *board) change(v thread.Change) bool {
	id := v.Summary.ID
	if v.Deleted || len(b.filter.Statuses) > 0 && !slices.Contains(b.filter.Statuses, v.Summary.Status) {
		delete(b.rows, id)
		return false
	}
	b.rows[id] = v.Summary
	if len(b.rows) > mostBoard {
		delete(b.rows, b.sorted()[len(b.rows)-1].ID)
	}
	return true
}

// sorted returns the board's threads, newest start first.
func (b *board) sorted() []thread.Summary {
	rows := make([]thread.Summary, 0, len(b.rows))
	for _, v := range b.rows {
		rows = append(rows, v)
	}
	slices.SortFunc(rows, func(x, y thread.Summary) int {
		if d := strings.Compare(y.StartedAt, x.StartedAt); d != 0 {
			return d
		}
		return strings.Compare(y.ID, x.ID)
	})
	return rows
}

func (b *board) now() time.Time { return time.Now().Add(b.skew) }

// news reports whether a thread differs from what was printed of it, and notes it as printed.
func (b *board) news(v thread.Summary) bool {
	state, _ := stateOf(v, b.now())
	cost := ""
	if v.Cost != nil {
		cost = strconv.FormatFloat(*v.Cost, 'f', -1, 64)
	}
	key := strings.Join([]string{state, v.Run, v.Harness, v.Model, cost, v.Title, v.ErrorClass}, "\x00")
	if b.printed[v.ID] == key {
		return false
	}
	if len(b.printed) > 10*mostBoard {
		clear(b.printed)
	}
	b.printed[v.ID] = key
	return true
}

// watchList shows the list as it changes.
func (p *program) watchList(c *cli.Context, l thread.List, f thread.Filter) error {
	b := &board{
		filter: f, limit: thread.ListLimit, rows: map[string]thread.Summary{}, printed: map[string]string{},
	}
	if _, live := cmdline.Terminal(p.stdout); live && os.Getenv("TERM") != "dumb" && !c.Bool("json") {
		return p.watchTable(c.Context, l, b, c.Int("n"))
	}
	if n := c.Int("n"); n > 0 {
		b.limit = min(n, b.limit)
	}
	return p.watchLines(c.Context, l, b, c.Bool("json"))
}

// follow passes what a watch receives to f, one at a time, and calls it once a second besides, until ctx is done or
// the watch or f fails.
func (b *board) follow(ctx context.Context, l thread.List, f func(event any) error) error {
	ctx, cancel := context.WithCancel(ctx)
	events, ended := make(chan any), make(chan error, 1)
	send := func(e any) error {
		select {
		case events <- e:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	go func() {
		ended <- l.Watch(ctx, b.filter, b.limit,
			func(page thread.ListPage) error { return send(page) },
			func(v thread.Change) error { return send(v) })
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var event any
		select {
		case event = <-events:
		case <-tick.C:
		case err := <-ended:
			cancel()
			return err
		}
		if err := f(event); err != nil {
			cancel()
			<-ended
			return err
		}
	}
}

// watchLines prints a line for each change: the threads of the first page, the oldest start first, and then each one
// of which a shown field has changed. A thread that the filter no longer covers gets a last line.
func (p *program) watchLines(ctx context.Context, l thread.List, b *board, asJSON bool) error {
	deleted := func(id string) error {
		delete(b.printed, id)
		if asJSON {
			_, err := fmt.Fprintf(p.stdout, "{\"id\":%q,\"deleted\":true}\n", id)
			return err
		}
		_, err := fmt.Fprintf(p.stdout, "%s\t%s\t\t\t\t\t\t\n", id, stateDeleted)
		return err
	}
	left := func(v thread.Summary) error {
		delete(b.printed, v.ID)
		return printRow(p.stdout, v, b.now(), asJSON)
	}
	return b.follow(ctx, l, func(event any) error {
		switch e := event.(type) {
		case thread.ListPage:
			for _, id := range b.replace(e) {
				if b.printed[id] == "" {
					continue
				}
				v, err := l.Thread(ctx, id)
				switch {
				case thread.NotFound(err):
					err = deleted(id)
				case err == nil:
					err = left(v)
				}
				if err != nil {
					return err
				}
			}
		case thread.Change:
			known := b.printed[e.Summary.ID] != ""
			switch on := b.change(e); {
			case e.Deleted && known:
				return deleted(e.Summary.ID)
			case !on && known:
				return left(e.Summary)
			}
		}
		for _, v := range slices.Backward(b.sorted()) {
			if b.news(v) {
				if err := printRow(p.stdout, v, b.now(), asJSON); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Sequences of the terminal.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

// watchTable draws the table again with each change, and once a second.
func (p *program) watchTable(ctx context.Context, l thread.List, b *board, most int) (err error) {
	if _, err := io.WriteString(p.stdout, enterScreen); err != nil {
		return err
	}
	defer func() {
		_, restore := io.WriteString(p.stdout, leaveScreen)
		err = errors.Join(err, restore)
	}()
	begun := false
	return b.follow(ctx, l, func(event any) error {
		switch e := event.(type) {
		case thread.ListPage:
			b.replace(e)
			begun = true
		case thread.Change:
			b.change(e)
		}
		_, height, _ := cmdline.TerminalSize(p.stdout)
		lines := []string{"waiting for the thread server"}
		if begun {
			rows := b.sorted()
			if most > 0 && len(rows) > most {
				rows = rows[:most]
			}
			lines = newTable(p.stdout).lines(rows, b.now())
			if len(rows) == 0 {
				lines = []string{emptyList(b.filter)}
			}
		}
		if height > 0 && len(lines) > height {
			lines = lines[:height]
		}
		_, err := io.WriteString(p.stdout, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J")
		return err
	})
}
