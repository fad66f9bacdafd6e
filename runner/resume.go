package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// resume gets the session of the thread's last run: wayToResume decides how. The zero sessionFile is for a thread that
// has none: the run begins a new session.
func (r *run) resume(ctx context.Context) (sessionFile, error) {
	lines, rebuilder, readErr := r.readThread(ctx)
	if readErr != nil && ctx.Err() != nil {
		return sessionFile{}, readErr
	}
	if rebuilder != nil {
		defer rebuilder.Close() // its files are temporary
	}
	own, state := r.resumeFacts(lines, rebuilder, readErr)
	way, why := wayToResume(state)
	if way == ResumeContinue {
		s, err := r.continueFile(own, lines, readErr)
		if err == nil {
			return s, nil
		}
		state.File, state.FileErr = fileUnusable, err
		way, why = wayToResume(state)
		own.read = false // continueFile may have changed its last line
	}
	if err := os.Remove(r.mirrorNotes(0)); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a file that is not used
		return sessionFile{}, err
	}
	switch way {
	case ResumeNone:
		r.Log.Info("the thread holds nothing to resume; starting a new session")
		return sessionFile{}, nil
	case ResumeHydrate:
		r.Log.Info("rebuilding the session from the thread", "because", why)
		return r.rebuild(own, lines, rebuilder)
	}
	return sessionFile{}, fmt.Errorf("read the thread: %w", readErr)
}

// readThread reads the whole thread, for the ids of its lines, for a rebuild, and for its pending chats. Both results
// are nil with an error. A thread that was never written is an empty one.
func (r *run) readThread(ctx context.Context) (*threadLines, *hydrate.Rebuilder, error) {
	lines := &threadLines{}
	rebuilder := &hydrate.Rebuilder{
		Dialect: r.Spec.Dialect, NextPrompt: promptID(r.RunID), DefaultCwd: r.Cwd,
		TempDir: r.Folder.Path,
	}
	pending, promptLength := &thread.Pending{}, 0
	err := r.Client.ReadAll(ctx, r.Timeout, func(e thread.Entry) error {
		parsed := hydrate.Parse(e, r.Spec.Dialect)
		lines.add(parsed, r.Spec.Dialect)
		if pending.AddParsed(parsed.Fields, e); e.ID == rebuilder.NextPrompt {
			promptLength = len(e.Payload) // at least: it is JSON
		}
		return rebuilder.Add(parsed)
	})
	if err != nil && !client.NotFound(err) {
		return nil, nil, errors.Join(err, rebuilder.Close())
	}
	for _, e := range r.beginning() { // the runs before this one are over, and their prompts wait
		pending.Add(e)
	}
	r.pending, r.promptLength = pending, promptLength
	return lines, rebuilder, nil
}

// ownFile is this box's own session file of the thread, and what resumeFacts has found out about it.
type ownFile struct {
	path   string
	posted session.Position // the lines before it are on the thread

	read    bool     // it was compared with the thread
	lines   compared // the result
	readErr error    // the error; see threadLines.compare
}

// resumeFacts gathers what decides how the run gets its session. It changes nothing. lines and rebuilder are nil where
// the thread can't be read, for readErr.
func (r *run) resumeFacts(lines *threadLines, rebuilder *hydrate.Rebuilder, readErr error) (ownFile, resumeState) {
	state := resumeState{Rebuild: r.Hydrate, Thread: threadFilled, Cwd: r.Cwd}
	switch {
	case readErr != nil && client.Refused(readErr):
		state.Thread = threadRefused
	case readErr != nil:
		state.Thread = threadUnread
	case rebuilder.Empty():
		state.Thread = threadEmpty
	}
	if r.Hydrate || state.Thread == threadRefused {
		return ownFile{}, state // the file doesn't matter
	}
	own := r.ownFile(lines)
	if state.Path = own.path; own.path == "" {
		state.File = fileUnknown
		return own, state
	}
	onThread, converted, notes := &threadLines{}, map[string]bool(nil), ""
	if lines != nil {
		onThread, converted, notes = lines, rebuilder.Converted(), r.mirrorNotes(0)
	}
	c, err := onThread.compare(own.path, r.Spec.Dialect, converted, notes)
	own.read, own.lines, own.readErr = true, c, err
	state.OldCwd, state.Lines = c.cwd, c.comparison
	if lines != nil {
		own.posted = c.posted
	}
	if err == nil {
		err = r.mustFind(sessionFile{path: own.path, id: c.info.ID})
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		state.File = fileGone
	case err != nil:
		state.File, state.FileErr = fileUnusable, err
	default:
		state.File, state.Dir = fileUsable, r.dirState(c.cwd)
	}
	return own, state
}

// ownFile returns the session file that is named, or else that of this box's last run on the thread, or else the one
// that the agent finds by the id of the thread's last session. How far a run has posted its file is known from its
// folder.
func (r *run) ownFile(lines *threadLines) ownFile {
	if r.Session != "" {
		return ownFile{path: r.Session}
	}
	for _, k := range r.runsHere() {
		if k.Thread == r.ThreadID && k.Run != r.RunID && k.Harness == r.Spec.Name && k.Session != "" {
			return ownFile{path: k.Session, posted: runfolder.Cursor(k.Path)}
		}
	}
	if r.Spec.FindSession == nil || lines == nil || lines.last == "" {
		return ownFile{}
	}
	return ownFile{path: r.Spec.FindSession(r.box(), lines.last)}
}

// runsHere returns the runs whose folders are in this box, the newest first, as far as they can be read.
func (r *run) runsHere() []runfolder.Known {
	runs, err := runfolder.List(r.State)
	if err != nil {
		r.Log.Warn("read this box's runs", "error", err)
	}
	return runs
}

// dirState returns whether the agent can work in the directory of a session, "" where the file names none.
func (r *run) dirState(cwd string) dirState {
	switch {
	case cwd == "":
		return dirUsable
	case r.CwdGiven && cwd != r.Cwd:
		return dirOther
	case !isDir(cwd):
		return dirGone
	}
	return dirUsable
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// continueFile continues this box's own session file, in the file's directory. A torn last line gets its newline.
func (r *run) continueFile(own ownFile, lines *threadLines, readErr error) (sessionFile, error) {
	info := own.lines.info
	if err := info.finish(own.path, r.Spec.Dialect); err != nil {
		return sessionFile{}, err
	}
	r.Cwd = cmp.Or(own.lines.cwd, r.Cwd)
	if lines != nil {
		r.known = &lines.known
	} else {
		r.Log.Warn("the thread can't be read; continuing this box's own session file as it is",
			"session", own.path, "error", readErr)
	}
	return sessionFile{path: own.path, id: info.ID, from: info.End, posted: own.posted, resume: ResumeContinue}, nil
}

// rebuild writes the session file from what the rebuilder has read. A file in its place that has what the thread lacks
// is kept under another name.
func (r *run) rebuild(own ownFile, lines *threadLines, rebuilder *hydrate.Rebuilder) (sessionFile, error) {
	now := time.Now()
	plan, err := rebuilder.Plan(NewID(), now)
	if err != nil {
		return sessionFile{}, err
	}
	// The agent works where the session has it work. That may be a directory of another box.
	if r.CwdGiven || plan.OldCwd == "" || !isDir(plan.OldCwd) {
		rebuilder.Cwd = r.Cwd
	} else {
		r.Cwd = plan.OldCwd
	}
	s := sessionFile{path: r.rebuiltPath(plan, now), id: plan.Session, resume: ResumeHydrate}
	if !plan.Known {
		return sessionFile{}, noSession(s.path, r.Spec.Dialect)
	}
	if !own.read || own.path != s.path {
		own.lines, own.readErr = lines.compare(s.path, r.Spec.Dialect, rebuilder.Converted(), "")
	}
	if err := r.keepOld(s.path, own.lines.Ahead, own.readErr); err != nil {
		return sessionFile{}, err
	}
	done, err := rebuilder.Write(s.path, s.id, now)
	if err != nil {
		return sessionFile{}, err
	}
	s.from, s.posted = done.End, done.End
	if err := r.mustFind(s); err != nil {
		return sessionFile{}, err
	}
	r.logRebuilt(s.path, done)
	return s, nil
}

// rebuiltPath returns where a rebuilt session goes: to the file that is named, or where the agent finds a session by
// its id, or where this box once had it, or to a new file.
func (r *run) rebuiltPath(plan hydrate.Report, now time.Time) string {
	if r.Session != "" {
		return r.Session
	}
	if r.Spec.FindSession != nil {
		if path := cmp.Or(r.Spec.FindSession(r.box(), plan.Session), r.formerFile(plan.Session)); path != "" {
			return path
		}
	}
	began := plan.Began
	if began.IsZero() {
		began = now
	}
	return r.Spec.SessionFile(r.box(), plan.Session, began)
}

// formerFile returns where this box once had a session, "" where it never had it. The agent may look for it there.
func (r *run) formerFile(sessionID string) string {
	for _, k := range r.runsHere() {
		if k.Harness == r.Spec.Name && k.SessionID == sessionID && k.Session != "" {
			return k.Session
		}
	}
	return ""
}

// logRebuilt logs what a rebuilt session has, and what of the thread it lacks.
func (r *run) logRebuilt(path string, done hydrate.Report) {
	r.Log.Info("session rebuilt from the thread", "session", path, "lines", done.Lines, "lost", len(done.Lost),
		"cut", done.Cut, "redacted", done.Redacted)
	for part, turns := range done.Omitted {
		r.Log.Warn("conversion to another harness is lossy", "turns", turns, "without", part)
	}
	for _, lost := range done.Lost {
		r.Log.Warn("not on the thread", "what", lost)
	}
	if done.OldCwd != "" && done.OldCwd != done.Cwd {
		r.Log.Info("the agent continues in another directory", "from", done.OldCwd, "to", done.Cwd)
	}
}

// keepOld renames the file at path, which a rebuild is about to replace, where it has whole lines that the thread lacks
// (ahead), or can't be read (err).
func (r *run) keepOld(path string, ahead int, err error) error {
	if errors.Is(err, fs.ErrNotExist) || err == nil && ahead == 0 {
		return nil
	}
	if st, statErr := os.Stat(path); err != nil && statErr == nil && st.Size() == 0 {
		return nil
	}
	kept := path + ".before-" + r.RunID
	r.Log.Warn("the session file has lines that the thread lacks; keeping it", "as", kept, "lines", ahead)
	return durable.Rename(path, kept)
}

// endFile gives a file's last line its newline.
func endFile(path string) error {
	f, err := session.OpenAppend(path)
	if err != nil {
		return err
	}
	return errors.Join(runfolder.EndLine(f), f.Close())
}
