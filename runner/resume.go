package runner

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Ways for a run to have a session, as its session_started says.
const (
	ResumeNone     = "none"     // a new one
	ResumeContinue = "continue" // this box's own file
	ResumeHydrate  = "hydrate"  // one that is rebuilt from the thread
)

// threadLines are the ids of the lines that a thread has, by session.
type threadLines struct {
	seed maphash.Seed
	ids  map[string]map[uint64]bool // by session
	last string                     // the session of the last line

	known mirror.Known
}

func (l *threadLines) add(e hydrate.Entry, d session.Dialect) {
	rest, ok := strings.CutPrefix(e.ID, d.Prefix+":")
	if !ok {
		return
	}
	l.known.Add(e.ID, e.Fields.Session, e.Line, d)
	sid, _, ok := strings.Cut(rest, ":")
	if !ok || e.Fields.IsSubagent() {
		return
	}
	if l.ids == nil {
		l.seed, l.ids = maphash.MakeSeed(), map[string]map[uint64]bool{}
	}
	if l.ids[sid] == nil {
		l.ids[sid] = map[uint64]bool{}
	}
	l.ids[sid][maphash.String(l.seed, e.ID)] = true
	if e.Fields.Kind == thread.KindMigrated {
		delete(l.ids[sid], maphash.String(l.seed, e.Fields.Supersedes)) // which is in the file as this one now
	}
	l.last = sid
}

func (l *threadLines) has(sid, id string) bool {
	ids := l.ids[sid]
	return ids != nil && ids[maphash.String(l.seed, id)]
}

// compared is how a session file stands to what the thread has of it.
type compared struct {
	info    SessionInfo
	cwd     string
	missing int              // lines that the thread has and the file doesn't
	ahead   int              // whole lines that the file has and the thread doesn't
	posted  session.Position // from here on the thread has not all lines
}

// compare reads a session file beside the thread's lines. made are the ids of lines that it must have, too, without there being entries for them.
func (l *threadLines) compare(path string, d session.Dialect, made map[string]bool) (c compared, err error) {
	if c.info, err = ReadSession(path, d); err != nil {
		return c, err
	}
	reader := session.NewReader(path, session.Position{})
	defer reader.Close() // read only: nothing to lose
	namer := mirror.Namer{Dialect: d, Session: c.info.ID, Known: &l.known}
	found, turns, sid, behind := 0, 0, "", false // the thread is behind the file
	for {
		line, err := reader.Rest()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c, err
		}
		e := d.Decode(line.Data)
		if !line.Held() {
			e = session.Entry{Kind: session.Text}
		}
		if e.Cwd != "" {
			c.cwd = e.Cwd
		}
		id := namer.Name(line, e).ID
		if sid == "" {
			_, rest, _ := strings.Cut(id, ":")
			sid, _, _ = strings.Cut(rest, ":")
		}
		switch {
		case l.has(sid, id):
			found++
		case made[hydrate.Key(line.Data, e)]:
			turns++
		case len(made) > 0 && e.Kind == session.Header: // of a file that began with them
		default:
			if !behind {
				c.posted, behind = line.Start, true
			}
			if !line.Torn {
				c.ahead++
			}
		}
	}
	if !behind {
		c.posted = c.info.End
	}
	c.missing = len(l.ids[sid]) - found + len(made) - turns
	if l.last != "" && l.last != sid {
		c.missing = len(l.ids[l.last]) // of another session than the one that goes on
	}
	return c, nil
}

// resume finds the session that goes on: the one that the thread's last run used. It is this box's own file where that has all that the thread has, and else one that
// is rebuilt from the thread. A server that doesn't answer is waited for, and then the file has to do. The zero sessionFile says that there is nothing to go on from.
func (r *run) resume(ctx context.Context) (sessionFile, error) {
	lines, rebuilder, err := r.readThread(ctx)
	if ctx.Err() != nil && err != nil {
		return sessionFile{}, err
	}
	if err != nil {
		if s, why := r.ownFile(nil, nil); why == "" && !r.Hydrate && !thread.Refused(err) {
			r.Log.Warn("the thread can't be read; going on with this box's own session file as it is", "session", s.path, "error", err)
			return s, nil
		}
		return sessionFile{}, fmt.Errorf("read the thread: %w", err)
	}
	defer rebuilder.Close() // what it had is in the file by then
	if !r.Hydrate {
		s, why := r.ownFile(lines, rebuilder.Converted())
		if why == "" {
			r.known = &lines.known
			return s, nil
		}
		r.Log.Info("rebuilding the session from the thread", "because", why)
	}
	return r.hydrate(lines, rebuilder)
}

// readThread reads the whole thread, for what it has of sessions.
func (r *run) readThread(ctx context.Context) (*threadLines, *hydrate.Rebuilder, error) {
	lines := &threadLines{}
	rebuilder := &hydrate.Rebuilder{Dialect: r.Spec.Dialect, NextPrompt: promptID(r.RunID), DefaultCwd: r.Cwd, TempDir: r.folder.Path}
	err := r.Client.ReadAll(ctx, r.Patience, func(e thread.Entry) error {
		parsed := hydrate.Parse(e, r.Spec.Dialect)
		lines.add(parsed, r.Spec.Dialect)
		return rebuilder.Add(parsed)
	})
	if err != nil && !thread.NotFound(err) {
		return nil, nil, errors.Join(err, rebuilder.Close())
	}
	return lines, rebuilder, nil
}

// ownFile is this box's own session file of the thread's last run; why says what is against it. Where the thread can't be read lines is nil: the file is as good as
// it is, and what the run before has posted of it is known from that one's folder.
func (r *run) ownFile(lines *threadLines, made map[string]bool) (s sessionFile, why string) {
	if s.path = r.Session; s.path == "" {
		runs, err := List(r.State)
		if err != nil {
			r.Log.Warn("not all that this box knows of its runs can be read", "error", err)
		}
		for _, k := range runs { // the newest first
			if k.Thread == r.ThreadID && k.Run != r.RunID && k.Harness == r.Spec.Name && s.path == "" {
				s.path, s.posted = k.Session, cursor(k.Path)
			}
		}
	}
	if s.path == "" && r.Spec.FindSession != nil && lines != nil && lines.last != "" {
		s.path = r.Spec.FindSession(r.box(), lines.last)
	}
	if s.path == "" {
		return s, "this box has no session of the thread"
	}
	known := lines
	if known == nil {
		known = &threadLines{}
	}
	c, err := known.compare(s.path, r.Spec.Dialect, made)
	if lines != nil {
		s.posted = c.posted
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, "the session file is gone: " + s.path
	case err != nil:
		return s, err.Error()
	case c.info.Torn && (c.ahead == 0 || c.missing > 0):
		return s, "the session file ends in the middle of a line: " + s.path
	case c.missing > 0:
		return s, fmt.Sprintf("the thread has %d lines that the session file does not have", c.missing)
	}
	switch st, err := os.Stat(c.cwd); {
	case c.cwd == "":
	case r.CwdGiven && c.cwd != r.Cwd:
		return s, fmt.Sprintf("the session is of %s, and is to go on in %s", c.cwd, r.Cwd)
	case err != nil || !st.IsDir():
		return s, "the session's directory is gone: " + c.cwd
	default:
		r.Cwd = c.cwd
	}
	if err := endFile(s.path); err != nil {
		return s, err.Error()
	}
	info, err := ReadSession(s.path, r.Spec.Dialect)
	s.id, s.from, s.resume = info.ID, info.End, ResumeContinue
	if err == nil {
		err = r.mustFind(s)
	}
	if err != nil {
		return s, err.Error()
	}
	return s, ""
}

// hydrate makes the session file from what the rebuilder has read.
func (r *run) hydrate(lines *threadLines, rebuilder *hydrate.Rebuilder) (sessionFile, error) {
	now := time.Now()
	plan, err := rebuilder.Plan(newID(), now)
	if errors.Is(err, hydrate.ErrNoSession) {
		r.Log.Info("the thread has nothing to go on from; a new session")
		return sessionFile{}, nil
	}
	if err != nil {
		return sessionFile{}, err
	}
	// The agent runs where the header says. That may be a directory of another box.
	if st, err := os.Stat(plan.OldCwd); r.CwdGiven || plan.OldCwd == "" || err != nil || !st.IsDir() {
		rebuilder.Cwd = r.Cwd
	} else {
		r.Cwd = plan.OldCwd
	}
	s := sessionFile{path: r.Session, id: plan.Session, resume: ResumeHydrate}
	if s.path == "" && r.Spec.FindSession != nil {
		if s.path = r.Spec.FindSession(r.box(), s.id); s.path == "" {
			s.path = r.formerFile(s.id)
		}
	}
	if s.path == "" {
		at := now
		if !plan.Began.IsZero() {
			at = plan.Began
		}
		s.path = r.Spec.SessionFile(r.box(), s.id, at)
	}
	if err := r.keepOld(s.path, lines, rebuilder.Converted()); err != nil {
		return sessionFile{}, err
	}
	done, err := rebuilder.Write(s.path, s.id, now)
	if err != nil {
		return sessionFile{}, err
	}
	info, err := ReadSession(s.path, r.Spec.Dialect)
	if err != nil {
		return sessionFile{}, err
	}
	s.from, s.posted = info.End, info.End
	if err := r.mustFind(s); err != nil {
		return sessionFile{}, err
	}
	r.Log.Info("the session is rebuilt from the thread", "session", s.path, "lines", done.Lines, "lost", len(done.Lost), "cut", done.Cut, "redacted", done.Redacted)
	for what, turns := range done.Omitted {
		r.Log.Warn("another harness can't be told all", "turns", turns, "without", what)
	}
	for _, lost := range done.Lost {
		r.Log.Warn("not on the thread", "what", lost)
	}
	if done.OldCwd != "" && done.OldCwd != done.Cwd {
		r.Log.Info("the session goes on in another directory", "was", done.OldCwd, "is", done.Cwd)
	}
	return s, nil
}

// keepOld moves a file aside that is about to be replaced, where it holds what the thread doesn't.
func (r *run) keepOld(path string, lines *threadLines, made map[string]bool) error {
	c, err := lines.compare(path, r.Spec.Dialect, made)
	if errors.Is(err, fs.ErrNotExist) || err == nil && c.ahead == 0 {
		return nil
	}
	if st, statErr := os.Stat(path); err != nil && statErr == nil && st.Size() == 0 {
		return nil
	}
	aside := path + ".before-" + r.RunID
	r.Log.Warn("the session file holds what the thread does not have; it is kept", "as", aside, "lines", c.ahead)
	return durable.Rename(path, aside)
}

// formerFile is where this box once had the session; "" where it never had. The agent may look for it there, although it is gone.
func (r *run) formerFile(id string) string {
	runs, err := List(r.State)
	if err != nil {
		r.Log.Debug("not all that this box knows of its runs can be read", "error", err)
	}
	for _, k := range runs {
		if k.Harness == r.Spec.Name && k.SessionID == id && k.Session != "" {
			return k.Session
		}
	}
	return ""
}

// endFile gives a file's last line its newline.
func endFile(path string) error {
	f, err := session.OpenAppend(path)
	if err != nil {
		return err
	}
	return errors.Join(endLine(f), f.Close())
}

// linesOnThread reads the thread for the lines that it has. A server that doesn't answer is not waited for.
func (r *run) linesOnThread(ctx context.Context) (*threadLines, error) {
	lines := &threadLines{}
	err := r.Client.ReadAll(ctx, r.Patience, func(e thread.Entry) error {
		lines.add(hydrate.Parse(e, r.Spec.Dialect), r.Spec.Dialect)
		return nil
	})
	if err != nil && !thread.NotFound(err) {
		return nil, err
	}
	return lines, nil
}

// nextIndex is where the mirroring of a session file that was named may begin: at the line with the index that was
// given, if the line before it is on the thread.
func (r *run) nextIndex(lines *threadLines, path string) (session.Position, error) {
	reader := session.NewReader(path, session.Position{})
	defer reader.Close() // read only: nothing to lose
	namer := mirror.Namer{Dialect: r.Spec.Dialect, Known: &lines.known}
	for {
		line, err := reader.Rest()
		if errors.Is(err, io.EOF) {
			return session.Position{}, nil // beyond the file
		}
		if err != nil {
			return session.Position{}, err
		}
		e := r.Spec.Dialect.Decode(line.Data)
		if !line.Held() {
			e = session.Entry{Kind: session.Text}
		}
		id := namer.Name(line, e).ID
		if line.Start.Index != r.NextIndex-1 {
			continue
		}
		for sid := range lines.ids {
			if lines.has(sid, id) {
				return line.End, nil
			}
		}
		return session.Position{}, nil
	}
}
