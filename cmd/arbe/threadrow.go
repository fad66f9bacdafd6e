package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

// newRow is the row of a new thread, as a person has typed it.
type newRow struct {
	command
	name, agent string
	tags        []string
}

// wanted reports whether the new thread is to be a house's. described is set where more than the house is typed.
func (r newRow) wanted(described bool) (bool, error) {
	switch {
	case r.house == "" && described:
		return false, cmdline.Usage("--name, --tag and --agent need --house")
	case r.database == "" && (described || r.house != os.Getenv("ARBE_HOUSE")):
		return false, errNoDatabase()
	}
	return r.house != "" && r.database != "", nil
}

// create makes the row of a thread on the log with this id. It comes before the thread's entries: what a crash leaves
// is a row without any.
func (r newRow) create(ctx context.Context, id, log string) error {
	db, err := openDatabase(ctx, r.database)
	if err != nil {
		return err
	}
	defer db.Close()
	s := db.Of(log).Host()
	h, err := findHouse(ctx, s, r.house)
	if err != nil {
		return databaseExit(err)
	}
	n := rows.NewThread{ID: id, House: h.ID, Name: r.name, Tags: r.tags}
	if r.agent != "" {
		a, err := findAgent(ctx, s, r.agent)
		if err != nil {
			return databaseExit(err)
		}
		n.Agent = a.ID
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
	return noRow(id, err)
}

// noRow names a thread that has no row.
func noRow(id string, err error) error {
	if errors.Is(err, rows.ErrAbsent) {
		const text = "no such thread of a house: %s; arbe ls --house HOUSE lists them"
		return &cmdline.Exit{Status: exitNoThread, Cause: fmt.Errorf(text, id)}
	}
	return err
}
