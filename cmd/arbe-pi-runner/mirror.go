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
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// mirrorFor bounds the tries of arbe-pi-runner mirror to reach the thread, from its last progress on.
const mirrorFor = 60 * time.Second

func (p *program) mirrorCommand() *cli.Command {
	return &cli.Command{
		Name:  "mirror",
		Usage: "post an existing session file to the thread; lines that the thread has are not posted twice",
		Description: `Posts every line of the file. With --follow it also posts lines written later, until INT or TERM.

` + envHelp,
		Flags: append([]cli.Flag{
			harnessFlag(),
			&cli.StringFlag{Name: "session", Usage: "post the session `FILE` (required)"},
			&cli.BoolFlag{Name: "follow", Usage: "follow the file while it grows"},
			cmdline.Verbose(),
			cmdline.LogFormat(),
		}, variableFlags(onThread...)...),
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
	if err := cmdline.CheckLogFormat(c); err != nil {
		return err
	}
	s, err := readSettings(p.getenv, p.environ, false)
	if err != nil {
		return err
	}
	info, err := runner.ReadSession(path, spec.Dialect)
	late := follow && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, runner.ErrNoSession) && info.End.Offset == 0)
	switch {
	case err == nil || late:
	case errors.Is(err, runner.ErrNoSession):
		return &cmdline.Exit{Status: runner.StatusNoSession, Cause: err}
	default:
		return cmdline.Unread("", err)
	}
	if info.ID == "" { // a file without a header is named by its path
		info.ID = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	log := p.log(c, p.stderr, p.atTerminal())
	cl := s.client(log)
	known := &mirror.Known{}
	var tries limit
	m := &mirror.Mirror{
		Encoder: mirror.Encoder{
			Namer: mirror.Namer{Dialect: spec.Dialect, Session: info.ID, Known: known}, Redact: s.redact,
			Author: s.author,
		},
		Path: path, Named: true, Log: log,
		Gate:  learn(cl, spec.Dialect, known, tries.extend, log),
		Saved: func(session.Position) error { tries.extend(); return nil },
		Append: func(ctx context.Context, entries []thread.Entry) error {
			_, err := cl.Append(ctx, entries)
			return err
		},
	}
	defer m.Close() // read only: nothing to lose
	ctx, abandon, stop := untilSignal(c.Context, log)
	defer stop()
	if follow {
		if err := m.Run(ctx); err != nil {
			return err
		}
		ctx = abandon // the lines before the signal are still posted
	}
	// Without an agent's exit the rest of a torn line may still come.
	pass := m.Drain
	if info.Torn || follow {
		pass = m.Sync
	}
	if err := persist(ctx, pass, &tries); err != nil {
		return err
	}
	if m.Posted() == 0 { // the file may have been replaced since
		info, err := runner.ReadSession(path, spec.Dialect)
		if errors.Is(err, runner.ErrNoSession) && (!late || info.End.Offset > 0) {
			return &cmdline.Exit{Status: runner.StatusNoSession, Cause: err}
		}
	}
	if info.Torn {
		log.Warn("file ends in an unfinished line: not posted", "path", path)
	}
	fmt.Fprintf(p.stdout, "mirrored %d lines of %s to thread %s\n", m.Posted(), path, s.thread)
	return nil
}

// learn returns a gate for a Mirror that reads the thread once, for the ids of the file's lines there. It calls
// progress for each entry.
func learn(cl *client.Client, d session.Dialect, known *mirror.Known,
	progress func(), log *slog.Logger,
) func(context.Context) error {
	done := false
	return func(ctx context.Context) error {
		if done {
			return nil
		}
		*known = mirror.Known{} // of a read that broke off
		_, err := cl.Read(ctx, "0", false, func(e thread.Entry) error {
			progress()
			parsed := hydrate.Parse(e, d)
			known.Add(e.ID, parsed.Fields.Session, parsed.Line, d)
			return nil
		})
		var answer *client.StatusError
		if errors.As(err, &answer) && answer.Status < http.StatusInternalServerError &&
			answer.Status != http.StatusTooManyRequests {
			if !client.NotFound(err) {
				log.Warn("read thread: lines that were rebuilt from it may be posted again",
					"error", err)
			}
			err = nil
		}
		done = err == nil
		return err
	}
}

// limit is a limit in time that progress extends. It may be extended at any time.
type limit struct{ timer atomic.Pointer[time.Timer] }

// bound returns a context that is done mirrorFor after the last progress. The caller calls stop.
func (l *limit) bound(ctx context.Context) (bounded context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	t := time.AfterFunc(mirrorFor, cancel)
	l.timer.Store(t)
	return ctx, func() { t.Stop(); cancel() }
}

// extend notes progress.
func (l *limit) extend() {
	if t := l.timer.Load(); t != nil {
		t.Reset(mirrorFor)
	}
}

// persist repeats a pass until it succeeds, as long as the limit lasts.
func persist(ctx context.Context, pass func(context.Context) error, l *limit) error {
	ctx, stop := l.bound(ctx)
	defer stop()
	for {
		err := pass(ctx)
		switch {
		case err == nil:
			return nil
		case client.Refused(err) || client.Redirected(err) || client.Gone(err):
			return &cmdline.Exit{Status: runner.StatusConfig, Cause: err}
		case errors.Is(err, session.ErrNotFile):
			return &cmdline.Exit{Status: runner.StatusNoSession, Cause: err}
		case ctx.Err() != nil:
			return &cmdline.Exit{
				Status: exitUndelivered,
				Cause:  fmt.Errorf("not all lines reached the thread: %w", err),
			}
		}
		pause.For(ctx, time.Second)
	}
}
