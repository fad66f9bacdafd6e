package main

import (
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/daemon"
)

// command is a command line: its arguments, and the flags that several commands have. A flag that the command lacks has
// its zero value. A command's action makes it; what the action calls reads no flags.
type command struct {
	*program
	args     []string
	folder   string // --data; "" for the user's own
	database string // a URL; "" for none
	keys     keyset // of secrets
	house    string // as it was typed; "" for none
	author   string // of entries; "" for none
	json     bool
	limits   limits
}

// limits are the limits of a reconciler. It has a default for each that is 0.
type limits struct{ orphanAfter, reapAfter, notifyAfter time.Duration }

// command reads a command line.
func (p *program) command(c *cli.Context) command {
	return command{
		program: p, args: c.Args().Slice(), folder: c.String("data"), database: c.String("database"),
		keys: keysetOf(c), house: c.String("house"), author: c.String("author"), json: c.Bool("json"),
		limits: limitsOf(c),
	}
}

// limitsOf reads the flags of reconcileFlags.
func limitsOf(c *cli.Context) limits {
	return limits{c.Duration("orphan-after"), c.Duration("reap-after"), c.Duration("notify-after")}
}

// arg returns an argument; "" where there are fewer.
func (c command) arg(i int) string {
	if i < len(c.args) {
		return c.args[i]
	}
	return ""
}

// data returns the data folder.
func (c command) data() (daemon.Data, error) { return dataFolder(c.folder) }

// server returns the data folder and the address of the thread server.
func (c command) server() (d daemon.Data, url string, err error) {
	if d, err = c.data(); err == nil {
		url, err = serverURL(d)
	}
	return d, url, err
}

// keysFit returns an error for keys of secrets on a command line without a database. Keys in the environment may be
// meant for other commands.
func (c command) keysFit() error {
	if c.database == "" && c.keys.file != "" && c.keys.file != os.Getenv("ARBE_SECRET_KEYS") {
		return cmdline.Usage("--secret-keys needs --database")
	}
	return nil
}
