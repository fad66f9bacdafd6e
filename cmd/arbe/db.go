package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) dbCommand() *cli.Command {
	return &cli.Command{
		Name: "db", Usage: "keep the schema of the database of houses, threads and sandboxes",
		Subcommands: []*cli.Command{
			{
				Name: "migrate", Usage: "bring the database to the schema of this arbe; print what was applied",
				Description: `The user of the address becomes the owner of the tables. It makes the role arbe_app, which
row level security holds to an agent's houses; where it may not, it prints the statements for an
administrator. An older arbe uses the database afterwards where the new steps only add. More in docs/UPGRADE.md.`,
				Flags: []cli.Flag{databaseFlag()}, Action: databaseAction(p.migrate),
			},
			{
				Name: "status", Usage: "print the schema's steps, and what differs from what they make",
				Description: `A step is printed with the time at which it was applied. Where all are, tables, columns,
constraints, indexes, policies, triggers, functions and the rights of requests are compared with what the steps
make: what is missing is printed as lacks, what they have not made as extra. Exit status 78 where anything
differs, or where this arbe can't use the schema.`,
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
	for _, m := range s.Migrations {
		applied := "pending"
		if !m.Applied.IsZero() {
			applied = m.Applied.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(p.stdout, "%d\t%s\t%s\n", m.Version, cmp.Or(m.Name, "(of a newer arbe)"), applied)
	}
	for _, line := range s.Lacks {
		fmt.Fprintln(p.stdout, "lacks\t"+line)
	}
	for _, line := range s.Extra {
		fmt.Fprintln(p.stdout, "extra\t"+line)
	}
	if err == nil && len(s.Lacks)+len(s.Extra) > 0 {
		return cmdline.Fail(exitConfig, "the database is not as the steps make it: lacks %d, extra %d",
			len(s.Lacks), len(s.Extra))
	}
	return err
}

// adopt moves a database to the log of the thread server.
func (p *program) adopt(c *cli.Context) error {
	if c.Args().Present() {
		return cmdline.Usage("db adopt takes no arguments")
	}
	db, err := openDatabase(c.Context, c.String("database"))
	if err != nil {
		return err
	}
	defer db.Close()
	cl, err := p.command(c).clientOf(token.SubjectThreads, token.ScopeThreads)
	if err != nil {
		return err
	}
	server, err := cl.Health(c.Context)
	switch {
	case err != nil:
		return reach(err)
	case server.Installation == "":
		return cmdline.Fail(exitNoReach,
			"%s does not name its log: ask the thread server itself, and not a proxy", cl.Address())
	}
	was, err := db.Log(c.Context)
	if err != nil {
		return databaseExit(err)
	}
	if was.Log == server.Installation {
		fmt.Fprintf(p.stdout, "the database is of this log (%s) since %s: nothing to do\n", was.Log, since(was.At))
		return nil
	}
	has, err := threadsOf(c.Context, client.NewList(cl))
	if err != nil {
		return reach(err)
	}
	n, err := db.Beside(c.Context, has)
	if err != nil {
		return databaseExit(err)
	}
	p.tellAdoption(was, server.Installation, n)
	if c.Bool("dry-run") {
		fmt.Fprintln(p.stdout, "dry run: nothing was changed")
		return nil
	}
	if err := db.Move(c.Context, server.Installation); err != nil {
		return databaseExit(err)
	}
	fmt.Fprintln(p.stdout, "moved: the rows follow this log within about a minute")
	return nil
}

// threadsOf returns the threads of a list, which has those with entries.
func threadsOf(ctx context.Context, l client.List) (ids []string, err error) {
	for page, err := range l.Pages(ctx, client.Filter{}) {
		if err != nil {
			return nil, err
		}
		for _, v := range page.Threads {
			ids = append(ids, v.ID)
		}
	}
	return ids, nil
}

// tellAdoption prints what a database's rows become beside another log.
func (p *program) tellAdoption(was control.BoundLog, log string, n control.Beside) {
	from := "none yet"
	if was.Log != "" {
		from = was.Log + " since " + since(was.At)
	}
	fmt.Fprintf(p.stdout, "log of the database: %s\nlog of the server:   %s\n", from, log)
	fmt.Fprintf(p.stdout, "%d rows of threads: the log has entries of %d\n", n.Threads, n.Found)
	fmt.Fprintf(p.stdout, "%d driven threads become idle, %d of them are running\n", n.Idle, n.Running)
	if n.Boxes > 0 {
		fmt.Fprintf(p.stdout, "%d sandboxes stay, for arbe sandbox rm --force: this log's reconcilers delete none\n",
			n.Boxes)
	}
}

func since(at time.Time) string { return at.UTC().Format(time.RFC3339) }
