package sandbox

import (
	"context"
	"errors"
	"net/http"
	"path"
	"strings"
	"time"
)

// farewell bounds what is done for a command that has come to its end, or was brought to it.
const farewell = time.Minute

// session is one command in a box, in a session of the daemon's.
type session struct {
	b    *daytonaBox
	id   string // ours; the daemon would make a path of any
	dir  string // the command's own, in the box
	out  *output
	told [2]int // how much of each output is in out
	cmd  string // the daemon's id of the command
	code *int   // how it ended; nil before

	never bool // it could not be started
}

// mark ends both outputs.
func (s *session) mark() string { return "[end of " + s.id + "]" }

// prepare puts the command's environment and its input into its folder.
func (s *session) prepare(ctx context.Context, c Command) error {
	var parts []part
	if len(c.Env) > 0 {
		env, err := exports(c.Env)
		if err != nil {
			return err
		}
		parts = append(parts, part{path.Join(s.dir, "env"), strings.NewReader(env), -1})
	}
	if c.Stdin != nil {
		parts = append(parts, part{path.Join(s.dir, "in"), c.Stdin, -1})
	}
	if parts == nil {
		return nil
	}
	// The files themselves can be read by all. The folder lets nobody in.
	if err := s.b.folder(ctx, s.dir, 0o700); err != nil {
		return err
	}
	return s.b.send(ctx, parts, streamed)
}

func (s *session) url(rest string) string { return "/process/session/" + s.id + rest }

// run starts the command and waits for its end, or for a reason to end it.
func (s *session) run(ctx context.Context, line string, tell bool) error {
	if err := s.b.call(ctx, request{
		doing: "make a session", method: http.MethodPost, url: "/process/session", body: map[string]string{"sessionId": s.id}, once: true,
	}); err != nil {
		return because(ctx, err)
	}
	var answer struct{ CmdID string }
	if err := s.b.call(ctx, request{
		doing: "run a command", method: http.MethodPost, url: s.url("/exec"), body: map[string]any{"command": line, "runAsync": true}, into: &answer, once: true,
	}); err != nil {
		return because(ctx, err)
	}
	s.cmd = answer.CmdID
	for wait := s.b.p.pace; ; wait = min(wait*5/4, 10*s.b.p.pace) {
		if err := s.look(ctx); err != nil || s.code != nil {
			return because(ctx, err)
		}
		if tell {
			if _, err := s.listen(ctx); err != nil {
				return because(ctx, err)
			}
		}
		if err := sleep(ctx, wait); err != nil {
			return err
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

// look asks whether the command has ended.
func (s *session) look(ctx context.Context) error {
	var answer struct {
		ExitCode *int `json:"exitCode"`
	}
	err := s.b.call(ctx, request{doing: "look at a command", method: http.MethodGet, url: s.url("/command/" + s.cmd), into: &answer})
	s.code = answer.ExitCode
	return err
}

// listen takes what the command has said since the last time, and says whether both outputs are at their end.
func (s *session) listen(ctx context.Context) (all bool, err error) {
	var log struct{ Stdout, Stderr string }
	if err := s.b.call(ctx, request{
		doing: "read a command's output", method: http.MethodGet, url: s.url("/command/" + s.cmd + "/logs"), into: &log, attempt: 4 * attempt,
	}); err != nil {
		return false, err
	}
	all = true
	for i, said := range []string{log.Stdout, log.Stderr} {
		at := strings.LastIndex(said, s.mark())
		if at < 0 {
			all, at = false, len(said)
		} else {
			s.never = s.never || strings.Contains(said[at:], "never")
		}
		if at > s.told[i] {
			s.out.add(Stdout+Stream(i), []byte(said[s.told[i]:at]))
			s.told[i] = at
		}
	}
	return all, nil
}

// finish reads a command's output to its end, which may come a little after the command's. Where it doesn't, somebody has killed the shell that would say so.
func (s *session) finish(ctx context.Context) error {
	defer func() { _ = s.end(ctx) }() // it is over; a session that stays is empty
	for range 20 {
		all, err := s.listen(ctx)
		if err != nil || all {
			return err
		}
		if err := sleep(ctx, s.b.p.pace); err != nil {
			return err
		}
	}
	s.b.remove(ctx, s.dir)
	return nil
}

// cut ends a command that has not ended, and takes what it has said until now.
func (s *session) cut(ctx context.Context) error {
	_, _, killed := s.b.execute(ctx, sh("kill a command", killScript, s.dir))
	if s.cmd != "" && killed == nil {
		for wait := range 10 { // it says its last words
			if s.look(ctx) != nil || s.code != nil || sleep(ctx, time.Duration(wait+1)*s.b.p.pace) != nil {
				break
			}
		}
		s.code = nil // that it ended after all is our doing
		if _, err := s.listen(ctx); err != nil {
			killed = err
		}
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
	err := s.b.p.do(ctx, request{doing: "delete a session", method: http.MethodDelete, url: s.b.toolbox + s.url("")})
	if answered(err, http.StatusNotFound) {
		return nil
	}
	return err
}
