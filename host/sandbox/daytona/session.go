package daytona

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
)

// cleanupTimeout bounds the work after a command's end. drainTimeout bounds the wait for the rest of a killed command's
// output.
const (
	cleanupTimeout = time.Minute
	drainTimeout   = 10 * time.Second
)

// session is one command in a box, in a session of the daemon's.
type session struct {
	b   *box
	id  string // made here: the daemon makes a path of it
	dir string // the command's own folder in the box
	out *kit.Capture
	cmd string // the daemon's id of the command

	stop func()        // makes follow return
	done chan struct{} // closed when follow has returned; nil before its call

	// follow owns these until done is closed.
	err   error
	seen  int64  // bytes of the log that were read
	line  []byte // the last line of them, if it has no newline yet
	ended [2]bool
	code  int  // the exit code
	never bool // the command could not be started
}

// Kinds of a command's input.
const (
	inputNone = "none"
	inputFile = "file" // uploaded before the command starts
	inputLive = "live" // sent while the command runs
)

// inputOf returns the kind of an input. An input in memory is a file. Any other may be endless, or wait for the
// command.
func inputOf(in io.Reader) string {
	switch in.(type) {
	case nil:
		return inputNone
	case interface{ Len() int }:
		return inputFile
	}
	return inputLive
}

// prepare uploads the command's environment, and an input of the kind inputFile, into its folder.
func (s *session) prepare(ctx context.Context, c sandbox.Command, how string) error {
	var parts []part
	var size int64
	if len(c.Env) > 0 {
		env, err := kit.Exports(c.Env)
		if err != nil {
			return err
		}
		parts = append(parts, part{path.Join(s.dir, "env"), strings.NewReader(env), -1})
	}
	if how == inputFile {
		size = int64(c.Stdin.(interface{ Len() int }).Len())
		parts = append(parts, part{path.Join(s.dir, "in"), c.Stdin, -1})
	}
	if parts == nil {
		return nil
	}
	// Anyone could read the files, but the folder admits its owner only.
	if err := s.b.folder(ctx, s.dir, 0o700); err != nil {
		return err
	}
	return s.b.send(ctx, parts, size)
}

func (s *session) url(rest string) string { return "/process/session/" + s.id + rest }

// start starts the command.
func (s *session) start(ctx context.Context, line string) error {
	if err := s.b.call(ctx, request{
		doing: "make a session", method: http.MethodPost, url: "/process/session",
		body: map[string]string{"sessionId": s.id}, once: true,
	}); err != nil {
		return causeOf(ctx, err)
	}
	var answer struct{ CmdID string }
	if err := s.b.call(ctx, request{
		doing: "run a command", method: http.MethodPost, url: s.url("/exec"), into: &answer, once: true,
		body: map[string]any{"command": line, "runAsync": true, "suppressInputEcho": true},
	}); err != nil {
		return causeOf(ctx, err)
	}
	s.cmd = answer.CmdID
	return nil
}

// run follows the command until it ends. It returns the reason if the command has to be ended early.
func (s *session) run(ctx context.Context, c sandbox.Command, how string) error {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop, s.done = stop, make(chan struct{})
	go func() {
		defer close(s.done)
		defer stop()
		s.err = s.follow(life)
	}()
	fed := make(chan error, 1)
	if how == inputLive {
		// A Read that blocks can't be interrupted: this goroutine lasts until the caller's input returns.
		go func() { fed <- s.feed(life, c.Stdin) }()
	}
	var refused error
	var grace <-chan time.Time
	for {
		select {
		case <-s.done:
			return s.err
		case <-ctx.Done():
			return context.Cause(ctx)
		case refused = <-fed:
			if refused != nil { // the daemon refuses input for a command that has just ended
				grace = time.After(20 * s.b.p.pace)
			}
		case <-grace:
			return refused
		}
	}
}

// causeOf returns the cause of ctx's end if err is that end.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// cut ends a command that is still running. follow reads its output up to then.
func (s *session) cut(ctx context.Context) error {
	_, _, killed := s.b.execute(ctx, sh("kill a command", killScript, s.dir))
	if s.done != nil {
		timer := time.AfterFunc(drainTimeout, s.stop)
		<-s.done
		timer.Stop()
	}
	err := s.end(ctx) // kills its processes, too
	s.b.remove(ctx, s.dir)
	if err == nil {
		return nil
	}
	return errors.Join(killed, err)
}

// end deletes the session and kills all processes that were started from it. A session that is gone is no error.
func (s *session) end(ctx context.Context) error {
	q := request{doing: "delete a session", method: http.MethodDelete, url: s.b.toolbox + s.url("")}
	err := s.b.p.do(ctx, q)
	if answered(err, http.StatusInternalServerError) { // a process created a file while the files were removed
		err = s.b.p.do(ctx, q)
	}
	if answered(err, http.StatusNotFound) {
		return nil
	}
	return err
}
