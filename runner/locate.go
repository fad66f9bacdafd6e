package runner

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"arbe.0sk.ar/runner/harness"
)

// How often a session that the agent makes by itself is looked for: at first it comes in a moment, and then it may never.
const (
	locateEvery = 20 * time.Millisecond
	locateSoon  = 10 * time.Second
	locateLater = 500 * time.Millisecond
)

// locate finds the session of an agent that makes it by itself: by the id that it was given, or that it tells. It returns when it is found, or when ctx is
// done, which is when the agent is gone; then it has looked once more.
func (r *run) locate(ctx context.Context) error {
	if path, _ := r.session(); path != "" {
		return nil
	}
	tick := time.NewTicker(locateEvery)
	defer tick.Stop()
	for began := clock(); ; {
		if r.findSession() || ctx.Err() != nil {
			return nil
		}
		if clock()-began > locateSoon {
			tick.Reset(locateLater)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// findSession looks for the session once.
func (r *run) findSession() bool {
	_, id := r.session()
	if id == "" {
		id = r.follower.tells()
	}
	if id == "" {
		return false
	}
	path := r.Spec.FindSession(r.box(), id)
	if path == "" {
		return false
	}
	found := harness.Session{Path: path, ID: id}
	r.note(Fact{Fact: FactLocated, Session: &found})
	r.locatedAt(&found)
	r.Log.Info("the agent's session", "path", path)
	return true
}

func (r *run) locatedAt(s *harness.Session) { r.place.Store(s) }

// session is where the session is, and its id; "" for what is not known yet.
func (r *run) session() (path, id string) {
	if s := r.place.Load(); s != nil {
		path, id = s.Path, s.ID
	}
	return path, id
}

// box is what the agent finds here.
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
