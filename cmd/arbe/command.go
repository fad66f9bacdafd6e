package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/cmd/internal/shortid"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
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
		limits: limits{c.Duration("orphan-after"), c.Duration("reap-after"), c.Duration("notify-after")},
	}
}

// first returns the first argument; "" without any.
func (c command) first() string {
	if len(c.args) == 0 {
		return ""
	}
	return c.args[0]
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

// Lengths of a thread's id that is shortened to its beginning.
const (
	leastPrefix     = 4  // characters, of a command that only reads
	leastUUIDPrefix = 8  // of one that changes a thread: names are taken as they are
	mostCandidates  = 10 // of an ambiguous prefix that a message names
)

// one returns the command's only argument, a thread's id, for a command that only reads: any unique prefix serves.
func (c command) one(ctx context.Context) (string, error) {
	if len(c.args) != 1 {
		return "", cmdline.Usage("want one thread id")
	}
	return c.resolve(ctx, c.args[0], leastPrefix)
}

// oneToChange is one for a command that changes the thread: a unique prefix of a UUID serves, any other id is exact.
func (c command) oneToChange(ctx context.Context) (string, error) {
	if len(c.args) != 1 {
		return "", cmdline.Usage("want one thread id")
	}
	return c.toChange(ctx, c.args[0])
}

// toChange returns the id that an argument of a command that changes the thread stands for.
func (c command) toChange(ctx context.Context, id string) (string, error) {
	if !shortid.UUIDPrefix(id) {
		return id, nil
	}
	return c.resolve(ctx, id, leastUUIDPrefix)
}

// resolve returns the id of the one thread that begins with prefix. It returns prefix itself where that is the id of a
// thread, where no thread begins with it, and where the list can't be read: the command finds out the rest. A whole
// UUID costs no request.
func (c command) resolve(ctx context.Context, prefix string, least int) (string, error) {
	if !thread.ValidThread(prefix) {
		return "", badThread(prefix)
	}
	if len(prefix) < least || shortid.UUIDPrefix(prefix) && len(prefix) == shortid.UUIDLength {
		return prefix, nil
	}
	cl, err := c.clientOf(token.SubjectThreads, token.ScopeThreads)
	if err != nil {
		return prefix, nil
	}
	cl.Thread, cl.Log = prefix, nil // the command's own requests log what fails
	if _, _, err := cl.Summary(ctx); !client.NoThread(err) {
		return prefix, nil
	}
	found, err := candidates(ctx, client.NewList(cl), prefix)
	switch {
	case err != nil || len(found) == 0:
		return prefix, nil
	case len(found) == 1:
		return found[0].ID, nil
	}
	return "", ambiguous(prefix, found)
}

// candidates returns the threads whose ids begin with prefix.
func candidates(ctx context.Context, l client.List, prefix string) (found []thread.Summary, err error) {
	for page, err := range l.Pages(ctx, client.Filter{Since: shortid.BornAfter(prefix, time.Now())}) {
		if err != nil {
			return nil, err
		}
		for _, v := range page.Threads {
			if strings.HasPrefix(v.ID, prefix) {
				found = append(found, v)
			}
		}
	}
	return found, nil
}

// ambiguous is the error of a prefix of several ids. It names them, the newest first.
func ambiguous(prefix string, found []thread.Summary) error {
	var b strings.Builder
	for i, v := range found {
		if i == mostCandidates {
			fmt.Fprintf(&b, "\n  and %d more", len(found)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %s  %s  %s", v.ID, v.Status, listing.Clip(v.Title, 30))
	}
	return cmdline.Usage("thread id %q is ambiguous: want more of it; %d threads begin so:%s", prefix, len(found), &b)
}

// client returns a client of one thread, whose tokens have this scope.
func (c command) client(threadID, scope string) (*client.Client, error) {
	if !thread.ValidThread(threadID) {
		return nil, badThread(threadID)
	}
	cl, err := c.clientOf(thread.StreamName(threadID), scope)
	if err == nil {
		cl.Thread = threadID
	}
	return cl, err
}

func badThread(id string) error {
	return cmdline.Usage("thread id %q: want 1 to 128 characters of A-Z a-z 0-9 _ -", id)
}

// reading returns a client of the thread that is the only argument, which reads.
func (c command) reading(ctx context.Context) (*client.Client, error) {
	id, err := c.one(ctx)
	if err != nil {
		return nil, err
	}
	return c.client(id, token.ScopeRead)
}

// writing returns a client of the thread that is the first argument, which writes.
func (c command) writing(ctx context.Context) (*client.Client, error) {
	id, err := c.toChange(ctx, c.first())
	if err != nil {
		return nil, err
	}
	return c.client(id, token.ScopeWrite)
}

// clientOf returns a client of no thread, whose tokens have this subject and scope.
func (c command) clientOf(subject, scope string) (*client.Client, error) {
	d, url, err := c.server()
	if err != nil {
		return nil, err
	}
	tokens, err := tokensFor(d, url, subject, scope)
	if err != nil {
		return nil, err
	}
	log := cmdline.Logger(c.stderr, false)
	return &client.Client{Base: thread.BaseURL(url), Token: tokens, Log: log, HTTP: c.http}, nil
}
