package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// provisionFlags are the limits of a provisioner.
func provisionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "launches", Value: 4, Usage: "launch `N` delegated tasks at the same time"},
		&cli.BoolFlag{
			Name: "local-boxes",
			Usage: "let members of houses, and commands over HTTP, use local boxes, which run as the user of\n" +
				"this process",
		},
	}
}

func (p *program) provisionCommand() *cli.Command {
	return &cli.Command{
		Name:  "provision",
		Usage: "launch the tasks that arbe delegate and members of houses delegate",
		Description: `Any number of hosts may launch the tasks of one database: each task is launched by one of them.
arbe serve --provision does the same. Exit status 0 at a signal: other hosts continue the launches.

` + launchHelp,
		Flags: append(provisionFlags(),
			&cli.BoolFlag{Name: "once", Usage: "launch the tasks that wait now, and end"},
			&cli.StringSliceFlag{
				Name:  "env",
				Usage: "pass the `VARIABLE` of this environment to the agents; may be repeated",
			},
			&cli.StringSliceFlag{
				Name:  "file",
				Usage: "copy a file into the boxes' home folders, mode 0600: `SOURCE:PATH`; may be repeated",
			},
			databaseFlag(), secretKeysFlag(), cmdline.Verbose(),
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
	cmd, once, launches := p.command(c), c.Bool("once"), c.Int("launches")
	h, err := cmd.host()
	if err != nil {
		return err
	}
	key, err := secret(h.data)
	if err != nil {
		return err
	}
	base, err := serverURL(h.data)
	if err != nil {
		return err
	}
	logger := cmdline.Logger(p.stderr, c.Bool("verbose"))
	if err := cmd.awaitLog(c.Context, once, logger); err != nil {
		return err
	}
	db, err := h.database(c.Context)
	if err != nil {
		return databaseExit(err)
	}
	defer db.Close()
	h.client = minting(key, &client.Client{Base: thread.BaseURL(base), Log: logger, HTTP: p.http})
	to := h.provision(key, logger)
	to.LocalBoxes = c.Bool("local-boxes")
	if to.Env, err = variables("env", c.StringSlice("env")); err != nil {
		return err
	}
	if to.Files, err = inlineFiles(c.StringSlice("file")); err != nil {
		return err
	}
	if once {
		return databaseExit(provisioner(db, to, launches).Once(c.Context))
	}
	return provisioner(db, to, launches).Run(c.Context)
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

// provisioner returns what launches the tasks of a database, at most so many at the same time.
func provisioner(db *control.DB, to *provision.Host, most int) provision.Provisioner {
	name, err := os.Hostname()
	if err != nil {
		name = "host"
	}
	return provision.Provisioner{
		Queue: control.Queue{DB: db, Host: name + ":" + uuid.NewString()}, Host: to, Log: to.Log, Most: most,
	}
}
