package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

// houseFlag returns the flag of the house that a command is about.
func houseFlag() cli.Flag {
	return &cli.StringFlag{Name: "house", EnvVars: []string{"ARBE_HOUSE"}, Usage: "`HOUSE`, by name or id"}
}

// jsonFlag returns the flag of a list that programs read.
func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON object for each"}
}

// rowsCommand completes a command on the database's rows, as the host. Its ArgsUsage names the arguments that it wants;
// --none stands for them.
func rowsCommand(cmd cli.Command, act func(c *cli.Context, s control.Scope) error) *cli.Command {
	cmd.Flags = append(cmd.Flags, databaseFlag())
	cmd.Action = func(c *cli.Context) error {
		want := strings.Fields(cmd.ArgsUsage)
		if c.Bool("none") {
			want = nil
		}
		switch {
		case len(want) == 0 && c.Args().Present():
			return cmdline.Usage("takes no arguments")
		case c.NArg() != len(want) || slices.Contains(c.Args().Slice(), ""):
			return cmdline.Usage("want %s", strings.Join(want, " and "))
		}
		db, err := openDatabase(c.Context, c.String("database"))
		if err != nil {
			return err
		}
		defer db.Close()
		return databaseExit(act(c, db.Host()))
	}
	return &cmd
}

// houseCommand is rowsCommand for the rows of one house, that of --house.
func houseCommand(cmd cli.Command, act func(c *cli.Context, s control.Scope, h rows.House) error) *cli.Command {
	cmd.Flags = append([]cli.Flag{houseFlag()}, cmd.Flags...)
	full := rowsCommand(cmd, func(c *cli.Context, s control.Scope) error {
		h, err := findHouse(c.Context, s, c.String("house"))
		if err != nil {
			return err
		}
		return act(c, s, h)
	})
	open := full.Action
	full.Action = func(c *cli.Context) error {
		if c.String("house") == "" {
			return cmdline.Usage("want a --house")
		}
		return open(c)
	}
	return full
}

// known is a row as people name it.
type known struct {
	id, name string
	archived bool
}

// pick returns the row that a person means by its id, by its name or by the beginning of its id. Of rows with one name
// it is the one that is in use.
func pick[T any](noun, typed string, all []T, of func(T) known) (row T, err error) {
	for _, is := range []func(known) bool{
		func(k known) bool { return k.id == typed },
		func(k known) bool { return k.name == typed && !k.archived },
		func(k known) bool { return k.name == typed },
		func(k known) bool { return len(typed) >= leastPrefix && strings.HasPrefix(k.id, typed) },
	} {
		found := slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !is(of(one)) })
		switch {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			var ids []string
			for _, one := range found {
				ids = append(ids, of(one).id)
			}
			const text = "%s %q is ambiguous: want the id, one of %s"
			return row, cmdline.Usage(text, noun, typed, strings.Join(ids, ", "))
		}
	}
	list := noun
	if noun == "environment" {
		list = "env"
	}
	return row, cmdline.Fail(exitNoThread, "no such %s: %s; arbe %s list has those there are", noun, typed, list)
}

// findHouse returns the house that a person means.
func findHouse(ctx context.Context, s control.Scope, typed string) (rows.House, error) {
	all, err := s.Houses(ctx)
	if err != nil {
		return rows.House{}, err
	}
	return pick("house", typed, all, func(h rows.House) known { return known{id: h.ID, name: h.Name} })
}

// findAgent returns the agent that a person means.
func findAgent(ctx context.Context, s control.Scope, typed string) (rows.Agent, error) {
	all, err := s.Agents(ctx)
	if err != nil {
		return rows.Agent{}, err
	}
	return pick("agent", typed, all, func(a rows.Agent) known {
		return known{a.ID, a.Name, a.ArchivedAt != nil}
	})
}

// findEnvironment returns the environment of a house that a person means.
func findEnvironment(ctx context.Context, s control.Scope, house, typed string) (rows.Environment, error) {
	all, err := s.Environments(ctx, house)
	if err != nil {
		return rows.Environment{}, err
	}
	return pick("environment", typed, all, func(e rows.Environment) known {
		return known{e.ID, e.Name, e.ArchivedAt != nil}
	})
}

// printGrid prints rows: columns for people, lines for programs, or an object of each as JSON.
func printGrid[T any](w io.Writer, asJSON bool, g listing.Grid, all []T, fields func(T) []string) error {
	if asJSON {
		enc := json.NewEncoder(w)
		for _, one := range all {
			if err := enc.Encode(one); err != nil {
				return err
			}
		}
		return nil
	}
	for _, one := range all {
		g.Rows = append(g.Rows, fields(one))
	}
	return g.Write(w, newTable(w))
}

// environmentFor returns the id of the environment that a person means for a command on a thread; "" for a thread
// without a row, and where none is meant.
func (h host) environmentFor(ctx context.Context, id, typed string) (string, error) {
	if h.database == nil || typed == "" {
		return "", nil
	}
	db, err := h.database(ctx)
	if err != nil {
		return "", err
	}
	e, err := environmentOf(ctx, db.Host(), id, typed)
	if err != nil {
		err = fmt.Errorf("the rows of thread %s: %w", id, err)
	}
	return e, err
}

// environmentOf returns the id of the environment that a person means, of the house of a thread; "" for a thread
// without a row.
func environmentOf(ctx context.Context, s control.Scope, id, typed string) (string, error) {
	t, err := s.Thread(ctx, id)
	if err != nil {
		return "", rows.Present(err)
	}
	e, err := findEnvironment(ctx, s, t.House, typed)
	return e.ID, err
}
