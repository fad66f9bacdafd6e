package runner

import "fmt"

// Ways for a run to get its session, as its session_started reports them.
const (
	ResumeNone     = "none"     // a new session
	ResumeContinue = "continue" // this box's own file
	ResumeHydrate  = "hydrate"  // a file that is rebuilt from the thread
)

// resumeFails is the way of a run that can get no session: the agent is not started.
const resumeFails = "fails"

// threadState is the result of reading the thread of a run that resumes.
type threadState int

const (
	threadUnread  threadState = iota + 1 // the server did not answer in time
	threadRefused                        // the server refuses the token, or is another one
	threadEmpty                          // read: it holds no session and no turn
	threadFilled                         // read: it holds a session, or turns to make one of
)

// fileState is whether this box's own session file can be continued.
type fileState int

const (
	fileUnknown  fileState = iota + 1 // this box has no session of the thread
	fileGone                          // it had one
	fileUnusable                      // no session, not readable, not writable, or not the one that the agent finds
	fileUsable
)

// dirState is whether the agent can work where the session file names a directory.
type dirState int

const (
	dirUsable dirState = iota + 1 // it is there, or the file names none
	dirOther                      // another one is asked for (--cwd)
	dirGone                       // it is gone
)

// comparison counts the lines of a session file beside those of the thread. The zero value is that of a file whose
// thread can't be read.
type comparison struct {
	Torn  bool // the file ends in a part of a line
	Ahead int  // whole lines of the file that the thread doesn't have

	OnThread int // lines of the file's session on the thread
	Found    int // of these, those in the file

	Turns      int // turns of other harnesses and mirrors, which a rebuilt file would include
	TurnsFound int // of these, those in the file

	Other int // lines of the thread's last session, where that is another one than the file's
}

// missing returns the number of lines that the thread has, or makes, and the file lacks.
func (c comparison) missing() int {
	if c.Other > 0 {
		return c.Other
	}
	return c.OnThread - c.Found + c.Turns - c.TurnsFound
}

// resumeState is all that decides how a run that resumes gets its session.
type resumeState struct {
	Rebuild bool // --hydrate: the file is to be rebuilt in any case
	Thread  threadState
	File    fileState
	Lines   comparison // of a usable file
	Dir     dirState   // of a usable file

	// For the reason alone.
	Path        string // the file's
	FileErr     error  // of an unusable file
	Cwd, OldCwd string // where the agent is to work, and where the file has it work
}

// wayToResume returns how a run that resumes gets its session, and the reason where that is not by its own file. The
// thread is the source of truth: the box's own file is continued where it has all that the thread has. Where a thread
// can't be read, the file has to do. docs/SESSIONS.md has the table, and TestWayToResume holds it to this function.
func wayToResume(s resumeState) (way, why string) {
	why = s.objection()
	switch {
	case s.Thread == threadRefused, s.Thread == threadUnread && why != "":
		return resumeFails, why
	case why == "":
		return ResumeContinue, ""
	case s.Thread == threadEmpty:
		return ResumeNone, why
	default:
		return ResumeHydrate, why
	}
}

// objection returns what forbids to continue the box's own file, "" for nothing.
func (s resumeState) objection() string {
	missing := s.Lines.missing()
	switch {
	case s.Rebuild:
		return "a rebuild is asked for"
	case s.File == fileUnknown:
		return "this box has no session of the thread"
	case s.File == fileGone:
		return "the session file is gone: " + s.Path
	case s.File == fileUnusable:
		return s.FileErr.Error()
	case s.Lines.Torn && (s.Lines.Ahead == 0 || missing > 0): // else the lines before the torn end would be lost
		return "the session file ends in the middle of a line: " + s.Path
	case missing > 0:
		return fmt.Sprintf("the thread has %d lines that the session file does not have", missing)
	case s.Dir == dirOther:
		return fmt.Sprintf("the session is of %s, and is to continue in %s", s.OldCwd, s.Cwd)
	case s.Dir == dirGone:
		return "the session's directory is gone: " + s.OldCwd
	}
	return ""
}
