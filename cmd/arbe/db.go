package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

func (p *program) dbCommand() *cli.Command {
	return &cli.Command{
		Name: "db", Usage: "keep the schema of the database of houses, threads and sandboxes",
		Subcommands: []*cli.Command{
			{
				Name: "migrate", Usage: "bring the database to the schema of this arbe; print what was applied",
				Description: `The user of the address becomes the owner of the tables. It makes the role arbe_app, which
row level security holds to an agent's houses; where it may not, it prints the statements for an
administrator. An older arbe refuses the database afterwards.`,
				Flags: []cli.Flag{databaseFlag()}, Action: databaseAction(p.migrate),
			},
			{
				Name: "status", Usage: "print the schema's steps, and when each was applied",
				Flags: []cli.Flag{databaseFlag()}, Action: databaseAction(p.migrations),
			},
			{
				Name: "adopt", Usage: "move the database to the thread server's log; print what its rows become",
				Description: `A database is of the log of its first server. A server of another log, as one with an empty
data folder, serves its threads, answers members 503 and changes no row. After adopt it is the other way round:
rows follow this server's log, and those of threads that it lacks become idle. A log that was restored from a
backup is the same log, and needs no adopt.`,
				Flags: []cli.Flag{
					databaseFlag(),
					&cli.BoolFlag{Name: "dry-run", Usage: "print what the rows would become, and change nothing"},
				},
				Action: p.adopt,
			},
		},
	}
}

// databaseFlag returns the flag of the database's address.
func databaseFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "database", EnvVars: []string{"ARBE_DATABASE"}, DefaultText: "none",
		Usage: "`URL` of a Postgres, as postgres://USER@HOST/NAME?sslmode=verify-full; its password belongs into " +
			"the variable, PGPASSWORD or ~/.pgpass: other users see arguments",
	}
}

// databaseAction returns the action of a command about a database.
func databaseAction(act func(ctx context.Context, url string) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		url := c.String("database")
		switch {
		case c.Args().Present():
			return cmdline.Usage("takes no arguments")
		case url == "":
			return errNoDatabase()
		}
		return databaseExit(act(c.Context, url))
	}
}

// errNoDatabase returns the error of a command that needs a database.
func errNoDatabase() error {
	return &cmdline.Exit{Status: exitConfig, Cause: errors.New("no database: set ARBE_DATABASE or use --database")}
}

// exits are the exit statuses of errors of the rows, by their kind. Others are of the configuration: exitConfig.
var exits = []struct {
	kind   error
	status int
}{
	{rows.ErrAway, exitNoReach},
	{rows.ErrBusy, exitNoReach},
	{rows.ErrTimeout, exitNoReach},
	{rows.ErrAbsent, exitNoThread},
	{rows.ErrTaken, 1},
	{rows.ErrReference, 1},
	{rows.ErrInUse, 1},
	{rows.ErrInvalid, 1},
	{rows.ErrArchived, 1},
	{rows.ErrLastOwner, 1},
	{rows.ErrRunning, 1},
	{rows.ErrClosed, 1},
}

// databaseExit gives an error of a database its exit status.
func databaseExit(err error) error {
	if err == nil || errors.As(err, new(*cmdline.Exit)) {
		return err
	}
	for _, e := range exits {
		if errors.Is(err, e.kind) {
			return &cmdline.Exit{Status: e.status, Cause: err}
		}
	}
	return &cmdline.Exit{Status: exitConfig, Cause: err}
}

// migrate applies what a database lacks.
func (p *program) migrate(ctx context.Context, url string) error {
	applied, err := control.Migrate(ctx, url)
	for _, m := range applied {
		fmt.Fprintf(p.stdout, "%d\t%s\n", m.Version, m.Name)
	}
	return err
}

// migrations prints the schema's steps.
func (p *program) migrations(ctx context.Context, url string) error {
	s, err := control.ReadStatus(ctx, url)
	if err != nil {
		return err
	}
	newest := int64(0)
	for _, m := range s.Migrations {
		applied := "pending"
		if !m.Applied.IsZero() {
			applied = m.Applied.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(p.stdout, "%d\t%s\t%s\n", m.Version, m.Name, applied)
		newest = max(newest, m.Version)
	}
	if s.Database > newest {
		return fmt.Errorf("%w: its schema is %d, and this program knows %d", control.ErrNewer, s.Database, newest)
	}
	return nil
}
