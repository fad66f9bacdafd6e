package runner

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/runner/runfolder"
)

// Intervals of the search for a session file that the agent makes: locateEvery during the first locateSoon, then
// locateLater.
const (
	locateEvery = 20 * time.Millisecond
	locateSoon  = 10 * time.Second
	locateLater = 500 * time.Millisecond
)

// locate searches for the session file of an agent that makes it: by the id that the agent was given, or prints. It
// returns when the file is found, or after one more search once ctx is done, which is after the agent's end.
func (r *run) locate(ctx context.Context) error {
	if path, _ := r.session(); path != "" {
		return nil
	}
	tick := time.NewTicker(locateEvery)
	defer tick.Stop()
	for began := runfolder.Clock(); ; {
		if r.findSession() || ctx.Err() != nil {
			return nil
		}
		if runfolder.Clock()-began > locateSoon {
			tick.Reset(locateLater)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// findSession searches for the session file once.
func (r *run) findSession() bool {
	_, id := r.session()
	if id == "" {
		id = r.follower.sessionID()
	}
	if id == "" {
		return false
	}
	path := r.Spec.FindSession(r.box(), id)
	if path == "" {
		return false
	}
	found := harness.Session{Path: path, ID: id}
	r.note(runfolder.Fact{Fact: runfolder.FactLocated, Session: &found})
	r.locatedAt(&found)
	r.Log.Info("session file found", "path", path)
	return true
}

func (r *run) locatedAt(s *harness.Session) { r.place.Store(s) }

// session returns the session's path and id; "" for what is not known yet.
func (r *run) session() (path, id string) {
	if s := r.place.Load(); s != nil {
		path, id = s.Path, s.ID
	}
	return path, id
}

// box is the agent's environment and session folder.
func (r *run) box() harness.Box {
	return harness.Box{Getenv: r.getenv, Dir: filepath.Join(r.State, "sessions", r.ThreadID)}
}

// getenv is the value of a variable in the agent's environment.
func (r *run) getenv(name string) string {
	value := ""
	for _, kv := range r.Environ {
		if v, is := strings.CutPrefix(kv, name+"="); is && value == "" {
			value = v
		}
	}
	return value
}
