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

// sessionFile is the session file of a new run.
type sessionFile struct {
	path    string
	id      string           // the session's id
	from    session.Position // where this run's lines begin
	created bool             // this run made the file
	posted  session.Position // the lines before it are on the thread
	resume  string           // one of the Resume constants; "" for none
}

// prepareSession makes the session file of a new run, or checks the one that was named.
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
	// An agent appends to the file: its first line would join an unterminated one (pi 0.78.0 then loses both).
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
		r.Log.Warn("read thread; mirroring the session from its start", "error", readErr)
		return s, nil
	}
	r.known = &lines.known
	if r.NextIndex > 0 {
		if s.posted, err = r.nextIndex(lines, s.path); err == nil && s.posted.Index == 0 {
			r.Log.Warn("the thread lacks the line before the next index; mirroring the session from its start",
				"next_index", r.NextIndex)
		}
	}
	return s, err
}

// checkNamed refuses a named file that is no session file, before anything uses it. A missing or empty file is a new
// session. A resume may rebuild any regular file.
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

// newSession makes the file of a new session, or leaves that to an agent which makes it. made: s is ready.
func (r *run) newSession(s *sessionFile) (made bool, err error) {
	if r.Spec.Create == nil {
		if s.path != "" {
			if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
				return false, fmt.Errorf("%s: %w: %s makes its own session files; name an existing one, or none",
					s.path, ErrNoSession, r.Spec.Name)
			}
			return false, nil
		}
		if r.Spec.PrintsID {
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
		if err == nil { // write the target of a link, do not replace the link
			if path, err = filepath.EvalSymlinks(s.path); err != nil {
				return false, err
			}
		}
		return true, durable.WriteFile(path, r.Spec.Create(s.id, r.Cwd, at))
	}
	return false, err
}

// mustFind checks that an agent which finds a session by its id will find this very file.
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
		return fmt.Errorf("%s does not find session %s at %s; move the file to %s", r.Spec.Name, s.id, s.path,
			cmp.Or(found, r.Spec.SessionFile(r.box(), s.id, time.Now())))
	}
	return nil
}

// SessionInfo describes a session file.
type SessionInfo struct {
	ID   string           // of the session; "": no line has it
	End  session.Position // of the file
	Torn bool             // the last line has no newline, and is not JSON
}

// ReadSession reads a whole session file. Its error is fs.ErrNotExist if there is none, and ErrNoSession if it is not a
// regular file, or has no header and no line that the dialect knows.
func ReadSession(path string, d session.Dialect) (SessionInfo, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { // a Reader would wait for it
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
			continue // only the end is missing
		}
		e := d.Decode(line.Data)
		known = known || e.Known
		if info.ID == "" {
			info.ID = e.SessionID
		}
		info.Torn = line.Torn && e.Kind == session.Text // a cut JSON object is not JSON
	}
	info.End = reader.Position()
	if !known {
		return info, fmt.Errorf("%s: %w: no header, and no line that %s writes", path, ErrNoSession, d.Prefix)
	}
	return info, nil
}
