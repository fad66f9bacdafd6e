package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
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

// subagents are the sessions of the agent's subagents, each with a mirror of its own. The verdict ignores them.
type subagents struct {
	mirrors []*mirror.Mirror
	known   map[string]bool // by path
	others  map[string]bool // files of other sessions
	lines   atomic.Int64    // lines that the mirrors have posted, or tried to
}

// followSubagents mirrors the subagents' sessions until ctx is done.
func (r *run) followSubagents(ctx context.Context) error {
	if r.Spec.Subagents == nil {
		return nil
	}
	tick := time.NewTicker(r.intervals.lookEvery)
	defer tick.Stop()
	for {
		for _, m := range r.newSubagents() {
			defer start(ctx, m.Run)()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// noteSubagents notes in the record which subagents the session has when the run begins, by the sizes of their files. A
// file that does not grow later is of a run before.
func (r *run) noteSubagents() {
	if r.Spec.Subagents == nil {
		return
	}
	at := harness.Session{Path: r.record.Session}
	if r.record.From.Index > 0 { // else it has not begun
		at.ID = r.record.SessionID
	}
	for _, s := range r.Spec.Subagents(r.box(), at, r.subagents.others) {
		if st, err := os.Stat(s.Path); err == nil {
			if r.record.Subagents == nil {
				r.record.Subagents = map[string]int64{}
			}
			r.record.Subagents[s.Path] = st.Size()
		}
	}
}

// newSubagents returns mirrors for the sessions that are new, or have grown, since the last call.
func (r *run) newSubagents() (fresh []*mirror.Mirror) {
	if r.Spec.Subagents == nil {
		return nil
	}
	sessions, _ := r.trail.all()
	for _, of := range sessions {
		if of.Path == "" || of.ID == "" {
			continue
		}
		for _, s := range r.Spec.Subagents(r.box(), of, r.subagents.others) {
			if r.subagents.known[s.Path] || r.oldSubagent(s.Path) {
				continue
			}
			r.subagents.known[s.Path] = true
			r.Log.Info("subagent session found", "path", s.Path)
			fresh = append(fresh, r.subagent(s, of.ID))
		}
	}
	r.subagents.mirrors = append(r.subagents.mirrors, fresh...)
	return fresh
}

// subagent returns the mirror of a subagent's session.
func (r *run) subagent(s harness.Session, of string) *mirror.Mirror {
	return &mirror.Mirror{
		Encoder: mirror.Encoder{
			Namer:  mirror.Namer{Dialect: r.Spec.Dialect, Session: s.ID},
			Redact: r.Redact, Author: r.Author, Subagent: of,
		},
		Notes: r.subagentNotes(s.Path),
		Path:  s.Path, Log: r.Log.With("subagent", s.ID),
		Gate: r.awaitOpen,
		Append: func(ctx context.Context, entries []thread.Entry) error {
			r.subagents.lines.Add(int64(len(entries)))
			_, err := r.post(ctx, entries)
			return err
		},
	}
}

// subagentNotes is the path of the notes of a subagent's mirror.
func (r *run) subagentNotes(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(r.Folder.Path, "subagent-"+hex.EncodeToString(sum[:8])+".notes")
}

// oldSubagent reports whether the file at path is as it was when the run began.
func (r *run) oldSubagent(path string) bool {
	size, was := r.record.Subagents[path]
	if !was {
		return false
	}
	st, err := os.Stat(path)
	return err != nil || st.Size() == size
}

// drainSubagents posts the remaining lines of the subagents' sessions after the agent's end.
func (r *run) drainSubagents(ctx context.Context) error {
	r.newSubagents()
	for _, m := range r.subagents.mirrors {
		if err := r.excuse(m.Drain(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) closeSubagents() {
	for _, m := range r.subagents.mirrors {
		_ = m.Close() // read only: nothing to lose
	}
}
