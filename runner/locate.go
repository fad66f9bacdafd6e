package runner

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/session"
)

// Intervals of the search for a session file that the agent makes: locateEvery during the first locateSoon, then
// locateLater.
const (
	locateEvery = 20 * time.Millisecond
	locateSoon  = 10 * time.Second
	locateLater = 500 * time.Millisecond
)

// locate searches for the session file of an agent that makes it: by the id that the agent was given, or prints. It
// searches on: the agent may begin another session. It returns after one more search once ctx is done, which is after
// the agent's end.
func (r *run) locate(ctx context.Context) error {
	if r.Spec.FindSession == nil {
		return nil
	}
	tick := time.NewTicker(locateEvery)
	defer tick.Stop()
	for began := runfolder.Clock(); ; {
		for r.findSession() {
		}
		if ctx.Err() != nil {
			return nil
		}
		if path := r.session(); path != "" || runfolder.Clock()-began > locateSoon {
			tick.Reset(locateLater)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// findSession searches once for a session file that was not found yet: that of the session with the id that the agent
// was given, or of the next one that it has begun since, which it prints. It finds a file again that the agent has
// moved to another folder, as claude-code does for a worktree.
func (r *run) findSession() bool {
	r.finding.Lock()
	defer r.finding.Unlock()
	last := r.trail.last()
	var sought []harness.Session
	if last.ID != "" && r.Spec.FindSession != nil && (last.Path == "" || isGone(last.Path)) {
		sought = append(sought, last)
	}
	for _, s := range r.follower.sessions() {
		if !r.trail.has(s.ID) {
			sought = append(sought, s)
		}
	}
	for _, s := range sought {
		if r.Spec.FindSession != nil {
			s.Path = r.Spec.FindSession(r.box(), s.ID)
		}
		// A session that has not begun can't be continued: the agent may have died before.
		if s.Path == "" || s.Path == last.Path || last.ID != "" && s.ID != last.ID && !begun(s.Path, r.Spec.Dialect) {
			continue
		}
		r.found(s)
		return true
	}
	return false
}

// begun reports whether a session has a line with an id.
func begun(path string, d session.Dialect) bool {
	reader := session.NewReader(path, session.Position{})
	defer reader.Close() // read only: nothing to lose
	for {
		line, err := reader.Next()
		if err != nil {
			return false // io.EOF, mostly; it is read again
		}
		if d.Decode(line.Data).ID != "" {
			return true
		}
	}
}

// found records where a session of the run is.
func (r *run) found(s harness.Session) {
	r.trail.put(s, func(another bool) {
		if another {
			r.saveCursor(session.Position{}) // before the fact: a stale one would be of the session before
		}
		r.note(runfolder.Fact{Fact: runfolder.FactLocated, Session: &s})
	})
	r.Log.Info("session file found", "path", s.Path)
}

// session returns the path of the session that the agent works in; "": not known yet.
func (r *run) session() string { return r.trail.last().Path }

func isGone(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// box is the agent's environment and session folder.
func (r *run) box() harness.Box {
	return harness.Box{Getenv: r.getenv, Dir: filepath.Join(r.State, "sessions", r.ThreadID)}
}

// getenv is the value of a variable in the agent's environment.
func (r *run) getenv(name string) string { return Getenv(r.Environ, name) }

// Getenv returns a variable's value in an environment; "" if it is not set.
func Getenv(environ []string, name string) string {
	for _, kv := range environ {
		if value, is := strings.CutPrefix(kv, name+"="); is {
			return value
		}
	}
	return ""
}
