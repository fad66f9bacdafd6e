package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread/client"
)

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
		return &cmdline.Exit{Status: exitNoReach, Cause: fmt.Errorf(
			"%s does not name its log: ask the thread server itself, and not a proxy", cl.Address())}
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
