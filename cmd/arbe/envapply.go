package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/recipe"
)

// exitData is the exit status for an environment that is not valid (EX_DATAERR).
const exitData = 65

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
	file := cmd.arg(0)
	switch {
	case c.NArg() != 1 || file == "":
		return cmdline.Usage("want the FILE of the environment")
	case cmd.house == "" && !c.Bool("check"):
		return cmdline.Usage("want the --house of the environment")
	}
	r, err := p.readRecipe(c.Context, file, recipe.Parse)
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
	var invalid *recipe.Error
	if errors.As(err, &invalid) {
		if invalid.File = file; file == "-" {
			invalid.File = "stdin"
		}
		return r, &cmdline.Exit{Status: exitData, Cause: err}
	}
	return r, err
}
