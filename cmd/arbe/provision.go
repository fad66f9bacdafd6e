package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// provisionFlags are the limits of a provisioner.
func provisionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "launches", Value: 4, Usage: "launch `N` runs at the same time"},
		&cli.BoolFlag{
			Name: "local-boxes",
			Usage: "let members of houses, their bots, and commands over HTTP use local boxes, which run as the\n" +
				"user of this process",
		},
	}
}

// taskFlags are the flags of a command that launches runs in the houses' boxes.
func taskFlags() []cli.Flag {
	return append(provisionFlags(),
		&cli.StringSliceFlag{
			Name:  "env",
			Usage: "pass the `VARIABLE` of this environment to the agents; may be repeated",
		},
		&cli.StringSliceFlag{
			Name:  "file",
			Usage: "copy a file into the boxes' home folders, mode 0600: `SOURCE:PATH`; may be repeated",
		},
	)
}

func (p *program) provisionCommand() *cli.Command {
	return &cli.Command{
		Name:  "provision",
		Usage: "launch the tasks that arbe delegate and members of houses delegate",
		Description: `Any number of hosts may launch the tasks of one database: each task is launched by one of them.
arbe serve --provision does the same. Exit status 0 at a signal: other hosts continue the launches.

` + p.launchHelp(),
		Flags: append(taskFlags(),
			&cli.BoolFlag{Name: "once", Usage: "launch the tasks that wait now, and end"},
			databaseFlag(), secretKeysFlag(), secretKMSFlag(), cmdline.Verbose(),
		),
		Action: p.provisionAction,
	}
}

func (p *program) provisionAction(c *cli.Context) error {
	switch {
	case c.Args().Present():
		return cmdline.Usage("provision takes no arguments")
	case c.Int("launches") < 1:
		return cmdline.Usage("--launches %d: want at least 1", c.Int("launches"))
	case c.String("database") == "":
		return errNoDatabase()
	}
	once, launches := c.Bool("once"), c.Int("launches")
	w, err := p.command(c).worker(c.Context, once, c.Bool("verbose"))
	if w == nil {
		return err
	}
	defer w.db.Close()
	to, err := w.tasks(c)
	if err != nil {
		return err
	}
	if once {
		return databaseExit(provisioner(w.db, to, launches).Once(c.Context))
	}
	w.server.Log.Info("launching the runs of tasks", "url", w.server.Base)
	return provisioner(w.db, to, launches).Run(c.Context)
}

// worker is a host that works for a thread server and its database until a signal.
type worker struct {
	host
	db     *control.DB
	server *client.Client // without a thread and a token
	key    []byte         // signs tokens
}

// worker waits for the thread server and for a database that it can use; with once it waits for neither. It returns nil
// after an error, and where a signal comes first. The caller closes the database.
func (c command) worker(ctx context.Context, once, verbose bool) (*worker, error) {
	h, err := c.host()
	if err != nil {
		return nil, err
	}
	key, err := secret(h.data)
	if err != nil {
		return nil, err
	}
	base, err := serverURL(h.data)
	if err != nil {
		return nil, err
	}
	logger := cmdline.Logger(c.stderr, verbose)
	if err := c.awaitLog(ctx, once, logger); err != nil {
		return nil, err
	}
	db, err := h.awaitDatabase(ctx, once, logger)
	switch {
	case err != nil && !once && ctx.Err() != nil:
		return nil, nil
	case err != nil:
		return nil, databaseExit(err)
	}
	server := &client.Client{Base: thread.BaseURL(base), Log: logger, HTTP: c.http}
	h.client = minting(key, server)
	return &worker{h, db, server, key}, nil
}

// tasks returns what this host gives to the runs that taskFlags are for.
func (w *worker) tasks(c *cli.Context) (to *provision.Host, err error) {
	to = w.provision(w.key, w.server.Log)
	to.LocalBoxes = c.Bool("local-boxes")
	if to.Env, err = variables("env", c.StringSlice("env")); err == nil {
		to.Files, err = inlineFiles(c.StringSlice("file"))
	}
	return to, err
}

// reopenEvery is the time between two attempts to reach the thread server, or the database.
const reopenEvery = 5 * time.Second

// awaitLog waits until the thread server answers: a provisioner works for long, and has to know whether the database is
// of the server's log. One pass does not wait.
func (c command) awaitLog(ctx context.Context, once bool, logger *slog.Logger) error {
	for logged := false; ; {
		_, err := c.installation(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case once:
			return reach(err)
		case !logged:
			logger.Warn("no answer from the thread server: tasks wait", "error", err)
			logged = true
		}
		pause.For(ctx, reopenEvery)
	}
}

// awaitDatabase waits until the database can be used: it may be away, as may the thread server again, or its operator
// has to migrate or adopt it. One pass does not wait.
func (h host) awaitDatabase(ctx context.Context, once bool, logger *slog.Logger) (*control.DB, error) {
	for logged := ""; ; {
		db, err := h.database(ctx)
		switch {
		case once || !rows.IsUnserved(err) && !errors.Is(err, errLogUnknown):
			return db, err
		case logged != err.Error():
			logger.Warn("database not opened: tasks wait", "error", err)
			logged = err.Error()
		}
		if !pause.For(ctx, reopenEvery) {
			return nil, err
		}
	}
}

// provisioner returns what launches the tasks of a database, at most so many at the same time.
func provisioner(db *control.DB, to *provision.Host, most int) provision.Provisioner {
	name, err := os.Hostname()
	if err != nil {
		name = "host"
	}
	queue := control.Queue{DB: db, Host: name + ":" + uuid.NewString()}
	return provision.Provisioner{
		Queue: queue, Host: to, Log: to.Log, Held: queue.Held, Hold: to.Hold, Most: most,
	}
}
