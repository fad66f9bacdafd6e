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
	info, err := r.checkNamed()
	if err != nil {
		return sessionFile{}, err
	}
	if r.Resume {
		if s, err := r.resume(ctx); err != nil || s.path != "" {
			if err == nil {
				err = r.amend(&s)
			}
			return s, err
		}
	}
	// A new session, a named one, or a resume of a thread that has none.
	s := sessionFile{path: r.Session, id: NewID()}
	if made, err := r.newSession(&s); made || err != nil {
		return s, err
	}
	if r.Resume || !info.known { // checkNamed has not read it, or found no session in it
		info, err = ReadSession(s.path, r.Spec.Dialect)
	}
	if err == nil {
		err = info.finish(s.path, r.Spec.Dialect)
	}
	s.id, s.from = info.ID, info.End
	if err == nil {
		err = r.mustFind(s)
	}
	if err == nil {
		err = r.amend(&s)
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

// checkNamed reads a named session file, and refuses one that is none, before anything uses it. A missing or empty file
// is a new session. A resume may rebuild any regular file: it reads the file when it has read the thread.
func (r *run) checkNamed() (info SessionInfo, err error) {
	if r.Session == "" {
		return info, nil
	}
	switch st, err := os.Stat(r.Session); {
	case errors.Is(err, fs.ErrNotExist), err == nil && st.Mode().IsRegular() && st.Size() == 0:
		return info, nil
	case !r.Resume:
		return ReadSession(r.Session, r.Spec.Dialect)
	}
	f, err := session.Open(r.Session)
	if errors.Is(err, session.ErrNotFile) {
		return info, fmt.Errorf("%w: %w", ErrNoSession, err)
	}
	if err == nil {
		_ = f.Close() // read only: nothing to lose
	}
	return info, nil // another error comes again once the file is read
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

// amend adds the line to a session file that the agent needs to continue it, if any. It is the last one before those of
// the run, and mirrored as they are.
func (r *run) amend(s *sessionFile) error {
	if r.Spec.Dialect.Amend == nil {
		return nil
	}
	line, err := r.Spec.Dialect.Amend(s.path)
	if err != nil || line == nil {
		return err
	}
	f, err := session.OpenAppend(s.path)
	if err != nil {
		return err
	}
	n, err := f.Write(append(line, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("amend the session: %w", err)
	}
	s.from.Offset, s.from.Index = s.from.Offset+int64(n), s.from.Index+1
	r.Log.Info("amended the session, so that the agent continues from its newest turn", "line", string(line))
	return nil
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
		if s.id == "" {
			return fmt.Errorf("%s does not find the session at %s: it has no id", r.Spec.Name, s.path)
		}
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

	known bool // there is a header, or a line that the dialect understands
	open  bool // the last line has no newline
}

// ReadSession reads a whole session file. Its error is fs.ErrNotExist if there is none, and ErrNoSession if it is not a
// regular file, or has no header and no line that the dialect understands.
func ReadSession(path string, d session.Dialect) (SessionInfo, error) {
	var info SessionInfo
	err := info.read(path, d, func(line session.Line) bool {
		if info.ID == "" || !info.known || line.Torn { // else only the end is missing
			info.add(line, d.Decode(line.Data))
		}
		return true
	})
	return info, err
}

// read calls f with a session file's lines, a torn one included, until f returns false. f adds the lines to info. Its
// error is that of ReadSession; after f has returned false, nil.
func (info *SessionInfo) read(path string, d session.Dialect, f func(session.Line) bool) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { // a Reader would wait for it
		return err
	}
	reader := session.NewReader(path, session.Position{})
	defer reader.Close() // read only: nothing to lose
	for {
		line, err := reader.Rest()
		switch {
		case errors.Is(err, io.EOF):
			if info.End = reader.Position(); !info.known {
				return noSession(path, d)
			}
			return nil
		case errors.Is(err, session.ErrNotFile):
			return fmt.Errorf("%w: %w", ErrNoSession, err)
		case err != nil:
			return err
		}
		if info.open = line.Torn; !f(line) {
			return nil
		}
	}
}

// add adds the file's next line, which decodes to e.
func (info *SessionInfo) add(line session.Line, e session.Entry) {
	info.known = info.known || e.Known
	if info.ID == "" {
		info.ID = e.SessionID
	}
	info.Torn = line.Torn && e.Kind == session.Text // a cut JSON object is not JSON
}

// finish gives the last line of the file, which info describes, its newline. An agent appends to the file: its first
// line would join an unterminated one (pi 0.78.0 then loses both).
func (info *SessionInfo) finish(path string, d session.Dialect) error {
	if err := endFile(path); err != nil {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	end := info.End.Offset
	if info.open {
		end++
	}
	if st.Size() != end { // somebody else writes to the file
		*info, err = ReadSession(path, d)
		return err
	}
	info.End.Offset, info.open, info.Torn = end, false, false
	return nil
}

func noSession(path string, d session.Dialect) error {
	return fmt.Errorf("%s: %w: no header, and no line that %s writes", path, ErrNoSession, d.Prefix)
}
