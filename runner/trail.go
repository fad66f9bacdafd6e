package runner

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
)

// trail is the sessions that the run's agent works in, one after the other: claude-code begins another one at /clear.
// Each has a Mirror. The lines of one are read, and posted, before those of the next: an agent that writes to the next
// one has written all of it.
//
// A line has a number in the run: its index, in a later session than the first with that session's number above it.
type trail struct {
	grown chan struct{} // there is another session

	mu       sync.Mutex
	sessions []harness.Session // the last one is the agent's; "" for what is not known yet
	mirrors  []*mirror.Mirror  // of the sessions, once begin was called
	open     opener
}

// opener returns the Mirror of session k, which has the id and finds its file by trail.at. before is the Mirror of the
// session before; nil for the first one. last: it is the last session so far.
type opener func(k int, id string, before *mirror.Mirror, last bool) *mirror.Mirror

// sessionBits is how far a session's number is above the index in a line's number.
const sessionBits = 32

// number returns the number in the run of the line with an index in session k.
func number(k, index int) int { return k<<sessionBits + index }

// begin makes the mirrors.
func (t *trail) begin(open opener) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = open
	t.mirror()
}

// mirror makes the mirrors that are missing.
func (t *trail) mirror() {
	for k := len(t.mirrors); k < len(t.sessions); k++ {
		var before *mirror.Mirror
		if k > 0 {
			before = t.mirrors[k-1]
		}
		t.mirrors = append(t.mirrors, t.open(k, t.sessions[k].ID, before, k == len(t.sessions)-1))
	}
}

// put adds a session, or what was not known of the last one: its path, and the id where the agent chooses it. note is
// called before.
func (t *trail) put(s harness.Session, note func(another bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.sessions)
	if n > 0 && (t.sessions[n-1].Path == "" || t.sessions[n-1].ID == s.ID) {
		note(false)
		t.sessions = append(slices.Clone(t.sessions[:n-1]), s) // others read the one that there was
		return
	}
	note(n > 0)
	t.sessions = append(t.sessions, s)
	if t.open != nil {
		t.mirror()
		notify(t.grown)
	}
}

// ifLast calls f if session k is the last one. No session is added meanwhile.
func (t *trail) ifLast(k int, f func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k != len(t.sessions)-1 {
		return nil
	}
	return f()
}

// all returns the sessions and their mirrors.
func (t *trail) all() ([]harness.Session, []*mirror.Mirror) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sessions[:len(t.sessions):len(t.sessions)], t.mirrors[:len(t.mirrors):len(t.mirrors)]
}

// has reports whether one of the sessions has the id.
func (t *trail) has(id string) bool {
	sessions, _ := t.all()
	return slices.ContainsFunc(sessions, func(s harness.Session) bool { return s.ID == id })
}

// last returns the agent's session.
func (t *trail) last() (s harness.Session) {
	if sessions, _ := t.all(); len(sessions) > 0 {
		s = sessions[len(sessions)-1]
	}
	return s
}

// at returns the path and the id of session k for its Mirror: no path while its file is not there.
func (t *trail) at(k int) (path, id string) {
	sessions, _ := t.all()
	if s := sessions[k]; s.Path != "" && !isGone(s.Path) {
		return s.Path, s.ID
	}
	return "", ""
}

// Run posts the lines of the sessions as they come, until ctx is done.
func (t *trail) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		_, mirrors := t.all()
		stop := start(ctx, mirrors[len(mirrors)-1].Run)
		select {
		case <-ctx.Done():
		case <-t.grown:
		}
		stop()
	}
	return nil
}

// Look is mirror.Mirror.Look for all sessions. It reads no line of one while there are some of the one before, unless
// that can't be read.
func (t *trail) Look(last bool) (err error) {
	sessions, mirrors := t.all()
	for k, m := range mirrors {
		if lookErr := m.Look(last); lookErr != nil {
			err = errors.Join(err, lookErr)
		} else if st, statErr := os.Stat(sessions[k].Path); statErr == nil && m.Tallied().Offset < st.Size() {
			break
		}
	}
	return err
}

// Drain posts what is left. A session that can't be read does not keep the later ones.
func (t *trail) Drain(ctx context.Context) (err error) {
	_, mirrors := t.all()
	for _, m := range mirrors {
		drainErr := m.Drain(ctx)
		if passable(drainErr) != nil {
			return drainErr
		}
		err = errors.Join(err, drainErr)
	}
	return err
}

// passable returns the error of a pass, but nil where it could not read the file.
func passable(err error) error {
	var unread *mirror.ReadError
	if errors.As(err, &unread) {
		return nil
	}
	return err
}

// Close closes the mirrors.
func (t *trail) Close() (err error) {
	_, mirrors := t.all()
	for _, m := range mirrors {
		err = errors.Join(err, m.Close())
	}
	return err
}

// Tallied returns the position behind the last line that was read of the last session, and that line's number in the
// run plus one.
func (t *trail) Tallied() (at session.Position, next int) {
	_, mirrors := t.all()
	k := len(mirrors) - 1
	at = mirrors[k].Tallied()
	return at, number(k, at.Index)
}

// Next returns the number in the run of the first line that is not on the thread.
func (t *trail) Next() int {
	_, mirrors := t.all()
	k := len(mirrors) - 1
	for k > 0 && mirrors[k].Posted() == 0 {
		k--
	}
	return number(k, int(mirrors[k].Posted()))
}

// Counts returns how many of the sessions' lines are on the thread, and how many were read.
func (t *trail) Counts() (posted, seen int64) {
	_, mirrors := t.all()
	for _, m := range mirrors {
		posted, seen = posted+m.Posted(), seen+m.Seen()
	}
	return posted, seen
}
