package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/runner/runfolder"
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

// newSubagents returns mirrors for the sessions that are new since the last call.
func (r *run) newSubagents() (fresh []*mirror.Mirror) {
	path, id := r.session()
	if path == "" || id == "" || r.Spec.Subagents == nil {
		return nil
	}
	if r.subagents.known == nil {
		r.subagents.known, r.subagents.others = map[string]bool{}, map[string]bool{}
	}
	for _, s := range r.Spec.Subagents(path, id, r.beganAt(time.Now()), r.subagents.others) {
		if r.subagents.known[s.Path] {
			continue
		}
		r.subagents.known[s.Path] = true
		r.Log.Info("subagent session found", "path", s.Path)
		fresh = append(fresh, &mirror.Mirror{
			Encoder: mirror.Encoder{
				Namer:  mirror.Namer{Dialect: r.Spec.Dialect, Session: s.ID},
				Redact: r.Redact, Author: r.Author, Subagent: id,
			},
			Notes: r.subagentNotes(s.Path),
			Path:  s.Path, Log: r.Log.With("subagent", s.ID),
			Gate: func(ctx context.Context) error {
				select {
				case <-r.opened:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
			Append: func(ctx context.Context, entries []thread.Entry) error {
				r.subagents.lines.Add(int64(len(entries)))
				_, err := r.post(ctx, entries)
				return err
			},
		})
	}
	r.subagents.mirrors = append(r.subagents.mirrors, fresh...)
	return fresh
}

// subagentNotes is the path of the notes of a subagent's mirror.
func (r *run) subagentNotes(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(r.folder.Path, "subagent-"+hex.EncodeToString(sum[:8])+".notes")
}

// beganAt is when the run began, to compare with the times of files. now is the time of the clock that stamps files.
func (r *run) beganAt(now time.Time) time.Time {
	if r.record.Boot != runfolder.BootID() {
		return r.record.Started
	}
	return began(r.record.Started, runfolder.Clock()-r.record.Clock, now)
}

// began is the begin, by a clock that shows now, of something that recorded started and has lasted for elapsed. A clock
// that was set back gives new files earlier times than started: by that clock it began earlier.
func began(started time.Time, elapsed time.Duration, now time.Time) time.Time {
	if at := now.Add(-elapsed); at.Before(started) {
		return at
	}
	return started
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
