package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// mirrorFor is how long a mirror by hand tries to reach the thread.
const mirrorFor = 60 * time.Second

func (p *program) mirrorCommand() *cli.Command {
	return &cli.Command{
		Name:  "mirror",
		Usage: "post an existing session file to the thread; what is there already is not doubled",
		Description: `Posts every line of the file. With --follow it goes on with what is written later, until it gets INT or TERM.

` + envHelp,
		Flags: []cli.Flag{
			harnessFlag(),
			&cli.StringFlag{Name: "session", Usage: "the session `FILE` (required)", TakesFile: true},
			&cli.BoolFlag{Name: "follow", Usage: "go on while the file grows"},
			cmdline.Verbose(),
		},
		Action: p.mirrorAction,
	}
}

func (p *program) mirrorAction(c *cli.Context) error {
	spec, err := harness.Lookup(c.String("harness"))
	if err != nil {
		return &cmdline.Exit{Status: cmdline.StatusUsage, Cause: err}
	}
	path, follow := c.String("session"), c.Bool("follow")
	if path == "" || c.Args().Present() {
		return cmdline.Usage("want --session FILE and no arguments; see arbe-pi-runner mirror --help")
	}
	s, err := readSettings(p.getenv, p.environ, false)
	if err != nil {
		return err
	}
	info, err := runner.ReadSession(path, spec.Dialect)
	late := follow && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, runner.ErrNoSession) && info.End.Offset == 0)
	if err != nil && !late {
		return &cmdline.Exit{Status: runner.StatusNoSession, Cause: err}
	}
	if info.ID == "" { // a file without a header goes by its name
		info.ID = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	log := cmdline.Logger(p.stderr, c.Bool("verbose"))
	client := s.client(log)
	known := &mirror.Known{}
	m := &mirror.Mirror{
		Encoder: mirror.Encoder{
			Namer: mirror.Namer{Dialect: spec.Dialect, Session: info.ID, Known: known}, Redact: s.redact,
			Author: s.author,
		},
		Path: path, Named: true, Log: log,
		Gate: learn(client, spec.Dialect, known, log),
		Append: func(ctx context.Context, entries []thread.Entry) error {
			_, err := client.Append(ctx, entries)
			return err
		},
	}
	defer m.Close() // read only: nothing to lose
	ctx, abandon, stop := untilSignal(c.Context)
	defer stop()
	if follow {
		if err := m.Run(ctx); err != nil {
			return err
		}
		ctx = abandon // what was written before the signal still goes out
	}
	// Without an agent it can't be known whether the rest of a torn line will come.
	pass := m.Drain
	if info.Torn || follow {
		pass = m.Sync
	}
	if err := persist(ctx, pass); err != nil {
		return err
	}
	if m.Posted() == 0 { // it may have become another file since it was looked at
		info, err := runner.ReadSession(path, spec.Dialect)
		if errors.Is(err, runner.ErrNoSession) && (!late || info.End.Offset > 0) {
			return &cmdline.Exit{Status: runner.StatusNoSession, Cause: err}
		}
	}
	if info.Torn {
		log.Warn("the file ends in an unfinished line, which is left for later", "path", path)
	}
	fmt.Fprintf(p.stdout, "mirrored %d lines of %s to thread %s\n", m.Posted(), path, s.thread)
	return nil
}

// learn returns a Mirror's gate that reads the thread once, for the ids that lines of the file have there.
func learn(client *thread.Client, d session.Dialect, known *mirror.Known,
	log *slog.Logger,
) func(context.Context) error {
	done := false
	return func(ctx context.Context) error {
		if done {
			return nil
		}
		*known = mirror.Known{} // of a read that broke off
		_, err := client.Read(ctx, "0", false, func(e thread.Entry) error {
			parsed := hydrate.Parse(e, d)
			known.Add(e.ID, parsed.Fields.Session, parsed.Line, d)
			return nil
		})
		var answer *thread.StatusError
		if errors.As(err, &answer) && answer.Status < http.StatusInternalServerError &&
			answer.Status != http.StatusTooManyRequests {
			if !thread.NotFound(err) {
				log.Warn("the thread can't be read; a session that was rebuilt from it may be posted again",
					"error", err)
			}
			err = nil
		}
		done = err == nil
		return err
	}
}

// persist makes a pass until it succeeds, within reason.
func persist(ctx context.Context, pass func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, mirrorFor)
	defer cancel()
	for {
		err := pass(ctx)
		switch {
		case err == nil:
			return nil
		case thread.Refused(err) || thread.Redirected(err):
			return &cmdline.Exit{Status: runner.StatusConfig, Cause: err}
		case errors.Is(err, session.ErrNotFile):
			return &cmdline.Exit{Status: runner.StatusNoSession, Cause: err}
		case ctx.Err() != nil:
			return &cmdline.Exit{
				Status: exitUndelivered,
				Cause:  fmt.Errorf("not all lines reached the thread: %w", err),
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
