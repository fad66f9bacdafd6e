package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/session"
)

// sessionFile is the session of a new run.
type sessionFile struct {
	path    string
	id      string           // the session's own name
	from    session.Position // where this run's lines begin
	created bool             // by us, for this run
	posted  session.Position // the lines before are on the thread
	resume  string           // one of the Resume constants; "" for none
}

// prepareSession makes the session file of a new run, or takes the one that was named.
func (r *run) prepareSession(ctx context.Context) (sessionFile, error) {
	if err := r.checkNamed(); err != nil {
		return sessionFile{}, err
	}
	if r.Resume {
		if s, err := r.resume(ctx); err != nil || s.path != "" {
			return s, err
		}
	}
	s := sessionFile{path: r.Session, id: newID()}
	if made, err := r.newSession(&s); made || err != nil {
		return s, err
	}
	info, err := ReadSession(s.path, r.Spec.Dialect)
	if err != nil {
		return s, err
	}
	// An agent appends to what is there, so a line without an end would take the next one with it (pi 0.78.0 then loses both).
	if err := endFile(s.path); err != nil {
		return s, err
	}
	info, err = ReadSession(s.path, r.Spec.Dialect)
	s.id, s.from = info.ID, info.End
	if err == nil {
		err = r.mustFind(s)
	}
	if err != nil {
		return s, err
	}
	lines, readErr := r.linesOnThread(ctx)
	if readErr != nil {
		r.Log.Warn("the thread can't be read; mirroring the session from its start", "error", readErr)
		return s, nil
	}
	r.known = &lines.known
	if r.NextIndex > 0 {
		if s.posted, err = r.nextIndex(lines, s.path); err == nil && s.posted.Index == 0 {
			r.Log.Warn("the line before the first one to mirror is not on the thread; mirroring the session from its start", "next_index", r.NextIndex)
		}
	}
	return s, err
}

// checkNamed refuses a session file that was named and is none, before anything is made of it. One that is missing
// or empty is still to come; one that a resume rebuilds may have been anything.
func (r *run) checkNamed() error {
	if r.Session == "" {
		return nil
	}
	switch st, err := os.Stat(r.Session); {
	case errors.Is(err, fs.ErrNotExist), err == nil && st.Mode().IsRegular() && st.Size() == 0:
		return nil
	}
	_, err := ReadSession(r.Session, r.Spec.Dialect)
	if r.Resume && !errors.Is(err, session.ErrNotFile) {
		return nil
	}
	return err
}

// newSession is for a run without a session to go on with: it makes the file that the agent is to work in, or leaves that to an agent which does it by itself.
func (r *run) newSession(s *sessionFile) (made bool, err error) {
	if r.Spec.Create == nil {
		if s.path != "" {
			if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
				return false, fmt.Errorf("%s: %w: %s makes its own; name one that is there, or none", s.path, ErrNoSession, r.Spec.Name)
			}
			return false, nil
		}
		if r.Spec.TellsID {
			s.id = ""
		}
		return true, nil
	}
	at := time.Now()
	if s.path == "" {
		s.path = r.Spec.SessionFile(r.box(), s.id, at)
	}
	if err := durable.MkdirAll(filepath.Dir(s.path)); err != nil {
		return false, err
	}
	st, err := os.Stat(s.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && st.Mode().IsRegular() && st.Size() == 0 {
		s.created = true
		path := s.path
		if err == nil { // what a link leads to is written, not the link replaced
			if path, err = filepath.EvalSymlinks(s.path); err != nil {
				return false, err
			}
		}
		return true, durable.WriteFile(path, r.Spec.Create(s.id, r.Cwd, at))
	}
	return false, err
}

// mustFind makes sure of an agent that goes by a session's id that it takes the very file that is meant.
func (r *run) mustFind(s sessionFile) error {
	if r.Spec.FindSession == nil {
		return nil
	}
	found := r.Spec.FindSession(r.box(), s.id)
	meant, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	if st, err := os.Stat(found); err != nil || !os.SameFile(st, meant) {
		return fmt.Errorf("%s looks for session %s by its id, and does not find %s; it would have to be %s", r.Spec.Name, s.id, s.path,
			cmp.Or(found, r.Spec.SessionFile(r.box(), s.id, time.Now())))
	}
	return nil
}

// SessionInfo is what a session file says of itself.
type SessionInfo struct {
	ID   string           // the session's; "" where no line says it
	End  session.Position // of the file
	Torn bool             // the last line is only a part: it has no newline, and what is there of it is no JSON
}

// ReadSession reads a whole session file; fs.ErrNotExist where there is none. ErrNoSession says that it is no
// regular file, or has no header and nothing in it that the dialect understands.
func ReadSession(path string, d session.Dialect) (SessionInfo, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { // to a Reader it is one that is still to come
		return SessionInfo{}, err
	}
	reader := session.NewReader(path, session.Position{})
	defer reader.Close() // read only: nothing to lose
	var info SessionInfo
	known := false
	for {
		line, err := reader.Rest()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, session.ErrNotFile) {
			return info, fmt.Errorf("%w: %w", ErrNoSession, err)
		}
		if err != nil {
			return info, err
		}
		if info.ID != "" && known && !line.Torn {
			continue // what is looked for is found: the rest is only counted
		}
		e := d.Decode(line.Data)
		known = known || e.Known
		if info.ID == "" {
			info.ID = e.SessionID
		}
		info.Torn = line.Torn && e.Kind == session.Text // of a JSON object no beginning is JSON
	}
	info.End = reader.Position()
	if !known {
		return info, fmt.Errorf("%s: %w: no header, and no line that %s writes", path, ErrNoSession, d.Prefix)
	}
	return info, nil
}
