package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
)

func (p *program) envCommand() *cli.Command {
	return &cli.Command{
		Name: "env", Usage: "keep the environments of a house: recipes for its boxes",
		Subcommands: []*cli.Command{
			p.envApplyCommand(),
			houseCommand(cli.Command{
				Name: "create", ArgsUsage: "NAME", Usage: "make an environment, and print its id",
				Flags: []cli.Flag{
					&cli.StringFlag{
						Name: "runtime", Value: rows.DefaultRuntime,
						Usage: "`PROVIDER` of its boxes: " + sandbox.Either(p.kinds.Names()),
					},
					&cli.StringSliceFlag{
						Name: "secret",
						Usage: "give agents the house's secret `NAME` as a variable; NAME? need not exist; " +
							"may be repeated",
					},
				},
			}, p.createEnvironment),
			houseCommand(cli.Command{
				Name: "list", Usage: "list the environments, by name", Flags: []cli.Flag{jsonFlag()},
			}, p.listEnvironments),
			houseCommand(cli.Command{
				Name: "show", ArgsUsage: "ENVIRONMENT", Usage: "print an environment and its secrets' names",
				Flags: []cli.Flag{jsonFlag()},
			}, p.showEnvironment),
			p.defaultEnvironmentCommand(),
			houseCommand(cli.Command{
				Name: "archive", ArgsUsage: "ENVIRONMENT",
				Usage: "take an environment out of use: no new thread or box may have it",
			}, environmentAction(control.Scope.ArchiveEnvironment)),
			houseCommand(cli.Command{
				Name: "rm", ArgsUsage: "ENVIRONMENT", Usage: "delete an environment that no thread or box has had",
			}, environmentAction(control.Scope.DeleteEnvironment)),
		},
	}
}

// secretNames returns the names of an environment's secrets as --secret has them.
func secretNames(e rows.Environment) string {
	names := make([]string, 0, len(e.Bindings))
	for _, b := range e.Bindings {
		if !b.Required {
			b.Name += "?"
		}
		names = append(names, b.Name)
	}
	return strings.Join(names, " ")
}

func (p *program) createEnvironment(c *cli.Context, s control.Scope, h rows.House) error {
	r := rows.Recipe{Name: c.Args().First(), Runtime: c.String("runtime"), Config: json.RawMessage("{}")}
	if _, err := p.kinds.Named(r.Runtime); err != nil {
		return cmdline.Usage("--runtime %w", err)
	}
	for _, name := range c.StringSlice("secret") {
		name, optional := strings.CutSuffix(name, "?")
		r.Bindings = append(r.Bindings, rows.Binding{Name: name, Required: !optional})
	}
	if err := p.runtimes().Check(&r); err != nil {
		return cmdline.Usage("%w", err)
	}
	all, err := s.Environments(c.Context, h.ID)
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.Name == r.Name && e.ArchivedAt == nil {
			return fmt.Errorf("the name %s: %w by the environment %s: archive that, or choose another name",
				r.Name, rows.ErrTaken, e.ID)
		}
	}
	e, err := s.CreateEnvironment(c.Context, h.ID, r)
	if err == nil {
		fmt.Fprintln(p.stdout, e.ID)
	}
	return err
}

func (p *program) listEnvironments(c *cli.Context, s control.Scope, h rows.House) error {
	all, err := s.Environments(c.Context, h.ID)
	if err != nil {
		return err
	}
	g := listing.Grid{Head: []string{"NAME", "ID", "RUNTIME", "STATE", "SECRETS"}}
	return printGrid(p.stdout, c.Bool("json"), g, all, func(e rows.Environment) []string {
		state := archived(e.ArchivedAt)
		if e.ID == h.DefaultEnvironment {
			state = "default"
		}
		return []string{e.Name, e.ID, e.Runtime, state, secretNames(e)}
	})
}

func (p *program) showEnvironment(c *cli.Context, s control.Scope, h rows.House) error {
	e, err := findEnvironment(c.Context, s, h.ID, c.Args().First())
	if err != nil {
		return err
	}
	if e, err = s.Environment(c.Context, e.ID); err != nil { // a list has no config
		return err
	}
	if c.Bool("json") {
		return printGrid(p.stdout, c.Bool("json"), listing.Grid{}, []rows.Environment{e}, nil)
	}
	return printGrid(p.stdout, c.Bool("json"), listing.Grid{}, [][]string{
		{"name", e.Name},
		{"id", e.ID},
		{"house", h.Name},
		{"created", e.CreatedAt.Local().Format(time.DateTime)},
		{"state", archived(e.ArchivedAt)},
		{"runtime", e.Runtime},
		{"secrets", secretNames(e)},
		{"config", string(e.Config)},
	}, func(row []string) []string { return row })
}

// defaultEnvironmentCommand takes --none in place of its argument.
func (p *program) defaultEnvironmentCommand() *cli.Command {
	cmd := houseCommand(cli.Command{
		Name: "default", ArgsUsage: "ENVIRONMENT",
		Usage: "make an environment that of the house's threads without one",
	}, func(c *cli.Context, s control.Scope, h rows.House) error {
		if c.Bool("none") {
			return s.SetDefaultEnvironment(c.Context, h.ID, "")
		}
		e, err := findEnvironment(c.Context, s, h.ID, c.Args().First())
		if err != nil {
			return err
		}
		return s.SetDefaultEnvironment(c.Context, h.ID, e.ID)
	})
	cmd.Flags = append(cmd.Flags, &cli.BoolFlag{Name: "none", Usage: "leave the house without a default environment"})
	return cmd
}

// environmentAction returns the action of a command that changes one environment.
func environmentAction(
	act func(s control.Scope, ctx context.Context, id string) error,
) func(*cli.Context, control.Scope, rows.House) error {
	return func(c *cli.Context, s control.Scope, h rows.House) error {
		e, err := findEnvironment(c.Context, s, h.ID, c.Args().First())
		if err != nil {
			return err
		}
		return act(s, c.Context, e.ID)
	}
}

func (p *program) envApplyCommand() *cli.Command {
	return &cli.Command{
		Name: "apply", ArgsUsage: "FILE",
		Usage: "make the environment of a house in FILE, or change the one with its name",
		Description: `FILE is YAML or JSON, - is stdin; docs/environment.schema.json describes it. Prints created, changed or
unchanged, the environment's id and its name. Exit status 65: FILE is not valid; each problem is
a line on stderr, with its place and its key.`,
		Flags: []cli.Flag{
			databaseFlag(),
			houseFlag(),
			&cli.BoolFlag{Name: "check", Usage: "check FILE alone, without a database"},
		},
		Action: p.applyEnvironment,
	}
}

// applyEnvironment makes or changes an environment of a house.
func (p *program) applyEnvironment(c *cli.Context) error {
	cmd := p.command(c)
	file := cmd.first()
	switch {
	case c.NArg() != 1 || file == "":
		return cmdline.Usage("want the FILE of the environment")
	case cmd.house == "" && !c.Bool("check"):
		return cmdline.Usage("want the --house of the environment")
	}
	r, err := p.readRecipe(c.Context, file, p.runtimes().Parse)
	if err != nil {
		return err
	}
	if r.Name == "" {
		err := &recipe.Error{File: file, Problems: []recipe.Problem{
			{Line: 1, Column: 1, Key: "name", Text: "missing: the environment of a house has one"},
		}}
		return &cmdline.Exit{Status: exitData, Cause: err}
	}
	if c.Bool("check") {
		return nil
	}
	row, err := r.Row()
	if err != nil {
		return err
	}
	db, err := openDatabase(c.Context, cmd.database)
	if err != nil {
		return err
	}
	defer db.Close()
	h, err := findHouse(c.Context, db.Host(), cmd.house)
	if err != nil {
		return databaseExit(err)
	}
	e, did, err := db.Host().ApplyEnvironment(c.Context, h.ID, row)
	if err == nil {
		fmt.Fprintf(p.stdout, "%s\t%s\t%s\n", did, e.ID, e.Name)
	}
	return databaseExit(err)
}

// readRecipe reads the environment in a file, or on stdin for "-", with one of the package's parsers.
func (p *program) readRecipe(
	ctx context.Context, file string, parse func([]byte) (recipe.Recipe, error),
) (recipe.Recipe, error) {
	in, err := p.open(ctx, file, "an environment")
	if err != nil {
		return recipe.Recipe{}, err
	}
	defer in.Close() // it is only read
	data, err := io.ReadAll(io.LimitReader(in, recipe.MaxSize+1))
	if err != nil {
		return recipe.Recipe{}, cmdline.Unread("read the environment", err)
	}
	r, err := parse(data)
	if invalid, is := errors.AsType[*recipe.Error](err); is {
		if invalid.File = file; file == "-" {
			invalid.File = "stdin"
		}
		return r, &cmdline.Exit{Status: exitData, Cause: err}
	}
	return r, err
}
