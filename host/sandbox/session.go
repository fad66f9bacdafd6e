package sandbox

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"time"
)

// farewell bounds what is done for a command that has come to its end, or was brought to it; lastWords how long the
// rest of a killed command's output is waited for.
const (
	farewell  = time.Minute
	lastWords = 10 * time.Second
)

// session is one command in a box, in a session of the daemon's.
type session struct {
	b   *daytonaBox
	id  string // ours; the daemon would make a path of any
	dir string // the command's own, in the box
	out *output
	cmd string // the daemon's id of the command

	stop func()        // makes follow return
	done chan struct{} // closed when follow has returned; nil before it was called

	// These are follow's until done is closed.
	err   error
	seen  int64  // bytes of the log that were read
	line  []byte // the last line of them, where it has no end yet
	ended [2]bool
	code  int  // how it ended
	never bool // it could not be started
}

// The ways in which a command gets its input.
const (
	inputNone = "none"
	inputFile = "file" // uploaded before the command starts
	inputLive = "live" // sent as it comes
)

// inputOf is how in reaches a command. What is in memory goes as a file. All else may be endless, or wait for the
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

// prepare puts the command's environment, and an input that goes as a file, into its folder.
func (s *session) prepare(ctx context.Context, c Command, how string) error {
	var parts []part
	var size int64
	if len(c.Env) > 0 {
		env, err := exports(c.Env)
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
	// The files themselves can be read by all. The folder lets nobody in.
	if err := s.b.folder(ctx, s.dir, 0o700); err != nil {
		return err
	}
	return s.b.send(ctx, parts, size)
}

func (s *session) url(rest string) string { return "/process/session/" + s.id + rest }

// start starts the command.
func (s *session) start(ctx context.Context, line string) error {
	if err := s.b.call(ctx, request{
		doing: "make a session", method: http.MethodPost, url: "/process/session", body: map[string]string{"sessionId": s.id}, once: true,
	}); err != nil {
		return because(ctx, err)
	}
	var answer struct{ CmdID string }
	if err := s.b.call(ctx, request{
		doing: "run a command", method: http.MethodPost, url: s.url("/exec"), into: &answer, once: true,
		body: map[string]any{"command": line, "runAsync": true, "suppressInputEcho": true},
	}); err != nil {
		return because(ctx, err)
	}
	s.cmd = answer.CmdID
	return nil
}

// run follows the command that start has started to its end, or until there is a reason to end it, which it returns.
func (s *session) run(ctx context.Context, c Command, how string) error {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop, s.done = stop, make(chan struct{})
	go func() {
		defer close(s.done)
		defer stop()
		s.err = s.follow(life)
	}()
	fed := make(chan error, 1)
	if how == inputLive {
		// A Read that blocks can't be interrupted: it is left to who gave the input, as is this goroutine.
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
			if refused != nil { // as the daemon refuses the input of a command that has just ended
				grace = time.After(20 * s.b.p.pace)
			}
		case <-grace:
			return refused
		}
	}
}

// because is the cause for which ctx ended, where that is what err is about.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// cut ends a command that has not ended. follow takes what it has printed until then.
func (s *session) cut(ctx context.Context) error {
	_, _, killed := s.b.execute(ctx, sh("kill a command", killScript, s.dir))
	if s.done != nil {
		timer := time.AfterFunc(lastWords, s.stop)
		<-s.done
		timer.Stop()
	}
	err := s.end(ctx) // kills what there is, too
	s.b.remove(ctx, s.dir)
	if err == nil {
		return nil
	}
	return errors.Join(killed, err)
}

// end deletes the session, and with it all that was started from it. One that is gone already is no error.
func (s *session) end(ctx context.Context) error {
	q := request{doing: "delete a session", method: http.MethodDelete, url: s.b.toolbox + s.url("")}
	err := s.b.p.do(ctx, q)
	if answered(err, http.StatusInternalServerError) { // something in it has made a file while its files were removed
		err = s.b.p.do(ctx, q)
	}
	if answered(err, http.StatusNotFound) {
		return nil
	}
	return err
}
