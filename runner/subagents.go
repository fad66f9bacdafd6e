package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/thread"
)

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
