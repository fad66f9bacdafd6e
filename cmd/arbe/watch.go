package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// watch shows the list as it changes.
func (q listQuery) watch(ctx context.Context, cl *client.Client) error {
	w := watched{list: client.NewList(cl), filter: q.filter, limit: client.ListLimit}
	if _, live := cmdline.Terminal(q.stdout); live && os.Getenv("TERM") != "dumb" && !q.json {
		cl.Log = nil // it would write into the table, which has a line for a server that is away
		return q.watchTable(ctx, w, q.most)
	}
	if q.most > 0 {
		w.limit = min(q.most, w.limit)
	}
	return q.watchLines(ctx, w, q.json)
}

// watched is a list to watch.
type watched struct {
	list   client.List
	filter client.Filter
	limit  int
}

// follow passes what a watch receives to f, one at a time, and calls it once a second besides, until ctx is done or
// the watch or f fails.
func (w watched) follow(ctx context.Context, f func(event any) error) error {
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
		ended <- w.list.Watch(ctx, w.filter, w.limit,
			func(page client.ListPage) error { return send(page) },
			func(v client.Change) error { return send(v) })
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
func (p *program) watchLines(ctx context.Context, w watched, asJSON bool) error {
	b := listing.NewBoard(w.filter, w.limit)
	deleted := func(id string) error {
		b.Forget(id)
		if asJSON {
			_, err := fmt.Fprintf(p.stdout, "{\"id\":%q,\"deleted\":true}\n", id)
			return err
		}
		_, err := fmt.Fprintf(p.stdout, "%s\t%s\t\t\t\t\t\t\n", id, listing.Deleted)
		return err
	}
	left := func(v thread.Summary) error {
		b.Forget(v.ID)
		return listing.WriteRow(p.stdout, v, b.Now(), asJSON)
	}
	var gone []string // threads that have left the list while the connection was lost
	ask := func() error {
		for ; len(gone) > 0; gone = gone[1:] {
			if !b.Printed(gone[0]) || b.Has(gone[0]) {
				continue
			}
			v, err := w.list.Thread(ctx, gone[0])
			switch {
			case client.NoThread(err):
				err = deleted(gone[0])
			case err == nil:
				err = left(v)
			default:
				return nil // the server is away again: later
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return w.follow(ctx, func(event any) error {
		switch e := event.(type) {
		case client.ListPage:
			gone = append(gone, b.Replace(e)...)
		case client.Change:
			known := b.Printed(e.Summary.ID)
			switch on := b.Change(e); {
			case e.Deleted && known:
				return deleted(e.Summary.ID)
			case !on && known:
				return left(e.Summary)
			}
		}
		if err := ask(); err != nil {
			return err
		}
		for _, v := range slices.Backward(b.Sorted()) {
			if b.News(v) {
				if err := listing.WriteRow(p.stdout, v, b.Now(), asJSON); err != nil {
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

// mostAway is the time without a page after which a table is an old one: a connection lasts a minute, and begins with
// a page.
const mostAway = 90 * time.Second

// watchTable draws the table again with each change, and once a second.
func (p *program) watchTable(ctx context.Context, w watched, most int) (err error) {
	b := listing.NewBoard(w.filter, w.limit)
	if _, err := io.WriteString(p.stdout, enterScreen); err != nil {
		return err
	}
	defer func() {
		_, restore := io.WriteString(p.stdout, leaveScreen)
		err = errors.Join(err, restore)
	}()
	var last time.Time // when the server sent a page last
	return w.follow(ctx, func(event any) error {
		switch e := event.(type) {
		case client.ListPage:
			b.Replace(e)
			last = time.Now()
		case client.Change:
			b.Change(e)
		}
		_, height, _ := cmdline.TerminalSize(p.stdout)
		lines := []string{"waiting for an answer from " + w.list.Address()}
		if !last.IsZero() {
			rows := b.Sorted()
			if most > 0 && len(rows) > most {
				rows = rows[:most]
			}
			t := newTable(p.stdout)
			lines = t.Lines(rows, b.Now())
			if len(rows) == 0 {
				lines = []string{emptyList(w.filter)}
			}
			if away := time.Since(last); away > mostAway {
				const text = "no answer from %s for %s: this is an old state"
				line := listing.Clip(fmt.Sprintf(text, w.list.Address(), listing.ShortDuration(away)), t.Width)
				lines = append([]string{line}, lines...)
			}
		}
		if height > 0 && len(lines) > height {
			lines = lines[:height]
		}
		_, err := io.WriteString(p.stdout, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J")
		return err
	})
}
