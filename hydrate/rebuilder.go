// Package hydrate rebuilds an agent's session file from the entries of a thread.
//
// It is the way back of package mirror. The two share no code but the vocabulary of session and thread: a Line's
// payload (thread.Line) and an agent's dialect. A thread that our mirror wrote gives the file back line by line, equal
// as JSON but for text that was redacted or cut. Turns that another harness or another mirror wrote become lines that
// the agent can load. The package reads no thread and uses no network: its caller feeds it the entries. It writes the
// file that Write names, and temporary files in one folder until Close.
package hydrate

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Rebuilder rebuilds the session file that a thread's last run used. Add it the thread's entries in their order, then
// Write the file, then Close it. Set the fields before the first Add.
//
// A thread may hold several sessions. The one of its last line or turn is rebuilt. Each is a draft in a file without a
// name, and the last one's becomes the session file: a line is written once. Memory grows by a hash or an id for each
// line, and not by the lines.
type Rebuilder struct {
	Dialect session.Dialect

	// Harnesses are those whose lines the thread may have; nil for session's list.
	Harnesses session.List

	// Cwd is the folder in which the agent continues; "" for the one in which it worked. DefaultCwd stands in where
	// the thread does not name that.
	Cwd, DefaultCwd string

	// Amend: the file ends with the line that the agent needs to continue it, if the dialect's Amend returns one. The
	// thread does not hold that line.
	Amend bool

	// NextPrompt is the id of the prompt of the run to come: a chat that is no turn of the session yet. "" for none.
	NextPrompt string

	// TempDir is the folder for drafts. It is made where it is missing. On the file system of the session file it saves
	// a copy.
	TempDir string

	drafts    []*draft // the sessions so far; the one of the last line or turn is the last
	of        string   // the session of another harness that the last converted turn is of
	fresh     bool     // that harness has begun another session, which has no turn yet
	chats     []Entry  // since the last line or turn: turns, if a turn without a line follows
	chatBytes int
	unrelated int // chats that are no turns of a session
	// prompts are the ids of prompts of runs whose line has not come: a session's header may stand between the two.
	prompts map[string]bool
}

// Report describes a rebuilt session file. The JSON names are those of arbe-pi-runner hydrate --json.
type Report struct {
	Session   string         `json:"session"`          // its id
	Lines     int            `json:"lines"`            // the header included
	Turns     int            `json:"turns"`            // of people, of agents, and tools' results
	Branches  int            `json:"branches"`         // turns whose parent is not the line before them
	Converted int            `json:"made"`             // lines made of turns of another harness or mirror
	Redacted  int            `json:"redacted"`         // lines in which a secret was replaced
	Cut       int            `json:"cut"`              // lines in which text was cut
	Omitted   map[string]int `json:"unsaid,omitempty"` // converted turns, by the part that the line can't express
	Lost      []string       `json:"lost"`             // lines that the thread doesn't hold, and why
	Unrelated int            `json:"aside"`            // chats on the thread that are no part of the session
	OldCwd    string         `json:"oldCwd"`           // where the agent worked
	Cwd       string         `json:"cwd"`              // where it continues
	Amended   bool           `json:"amended"`          // the last line is one of Amend, and not the thread's
	Leaf      string         `json:"leaf"`             // the id of the line that the agent continues from
	Began     time.Time      `json:"-"`                // of the session, from its header; zero where that has no time
	Size      int64          `json:"bytes"`            // of the file
	Last      string         `json:"lastEntry"`        // the id of the last entry in it

	Known bool             `json:"-"` // a line of it is a header, or is known to the dialect
	End   session.Position `json:"-"` // of the file
}

// ErrNoSession is the error for a thread without a session and without a turn.
var ErrNoSession = errors.New("the thread holds no session")

// Bounds of what is kept: of more chats in a row the oldest are left out, of more sessions the one that was silent
// longest.
const (
	maxChats     = 1000
	maxChatBytes = 16 << 20
	maxSessions  = 32
)

// Add adds the thread's next entry.
func (r *Rebuilder) Add(e Entry) error {
	switch {
	case strings.HasPrefix(e.Fields.Type, "signal."), e.Fields.IsSubagent(), e.Fields.Reaction != "":
		return nil
	case r.isLine(e):
		r.dropChats(e.Fields.Named())
		return r.addLine(e)
	case e.Fields.Type == thread.TypeChat:
		if e.turn = isTurn(e); e.ID != r.NextPrompt {
			r.keepChat(e)
		}
		return nil
	case isDelivery(e):
		return r.convertDelivery(e)
	case e.Fields.SubagentOf != "" || turnKind(e.Fields.Type) == session.Other:
		return nil
	}
	if err := r.convertChats(e.Fields.Session != nil); err != nil {
		return err
	}
	return r.convert(e)
}

// isLine reports whether our mirror made the entry of a line of this harness.
func (r *Rebuilder) isLine(e Entry) bool {
	if e.Fields.Session == nil {
		return false
	}
	return ofHarness(e.Fields.Type, r.Dialect) ||
		e.Fields.Type == thread.TypeChat && strings.HasPrefix(e.ID, r.Dialect.Prefix+":")
}

// keepChat keeps a chat until it is known whether it is a turn.
func (r *Rebuilder) keepChat(e Entry) {
	r.chats, r.chatBytes = append(r.chats, e), r.chatBytes+len(e.Payload)
	for len(r.chats) > maxChats || r.chatBytes > maxChatBytes {
		r.chatBytes -= len(r.chats[0].Payload)
		r.chats, r.unrelated = r.chats[1:], r.unrelated+1
	}
}

// dropChats drops the chats before a line: a chat that became a turn has a line of its own. repeated are the ids of the
// chats that this line repeats.
func (r *Rebuilder) dropChats(repeated []string) {
	for _, chat := range r.chats {
		switch {
		case slices.Contains(repeated, chat.ID):
		case thread.IsPrompt(chat.ID):
			if r.prompts == nil {
				r.prompts = map[string]bool{}
			}
			r.prompts[chat.ID] = true
		default:
			r.unrelated++
		}
	}
	for _, id := range repeated {
		delete(r.prompts, id)
	}
	r.chats, r.chatBytes = nil, 0
}

// addLine adds an entry that our mirror made of a line.
func (r *Rebuilder) addLine(e Entry) error {
	d, err := r.draftOf(*e.Fields.Session)
	if err != nil {
		return err
	}
	if e.Fields.Kind == thread.KindMigrated {
		return d.migrate(e)
	}
	return d.add(e)
}

// Empty reports whether the entries so far have neither a session nor a turn.
func (r *Rebuilder) Empty() bool {
	return r.current() == nil && !r.hasTurn()
}

// hasTurn reports whether a chat since the last line or turn is a turn of a run.
func (r *Rebuilder) hasTurn() bool {
	return slices.ContainsFunc(r.chats, func(e Entry) bool { return e.turn })
}

// Converted returns the Keys of the converted lines so far: a file of this box may lack these turns.
func (r *Rebuilder) Converted() map[string]bool {
	if d := r.current(); d != nil {
		return d.converted
	}
	return nil
}

// Plan returns the report of the file that Write would write. sessionID is the id for a session that has none yet, as
// one that is converted. ErrNoSession where the thread holds none. No entry may be added afterwards.
func (r *Rebuilder) Plan(sessionID string, now time.Time) (Report, error) {
	_, report, _, err := r.finish(sessionID, now)
	return report, err
}

// Write writes the file at path, readable by its owner alone: whole and on disk, or not at all. It makes missing
// folders. sessionID, ErrNoSession and entries afterwards are as for Plan. The draft itself becomes the file where its
// first line stays and path is on the file system of TempDir; else it is copied.
func (r *Rebuilder) Write(path, sessionID string, now time.Time) (Report, error) {
	d, report, header, err := r.finish(sessionID, now)
	if err != nil {
		return report, err
	}
	if err := durable.MkdirAll(filepath.Dir(path)); err != nil {
		return report, err
	}
	if d.start == 0 && header.line == nil && !d.named {
		if err = durable.Name(d.file, path); !errors.Is(err, durable.ErrCopy) {
			d.named = err == nil
			return report, err
		}
	}
	return report, durable.Create(path, func(w io.Writer) error { return d.copyTo(w, header) })
}

// Copy writes the file's bytes to w. sessionID, ErrNoSession and entries afterwards are as for Plan.
func (r *Rebuilder) Copy(w io.Writer, sessionID string, now time.Time) (Report, error) {
	d, report, header, err := r.finish(sessionID, now)
	if err != nil {
		return report, err
	}
	return report, d.copyTo(w, header)
}

// copyTo writes the header and the draft behind it to w.
func (d *draft) copyTo(w io.Writer, header newHeader) error {
	if _, err := w.Write(header.line); err != nil {
		return err
	}
	if _, err := d.file.Seek(d.start+header.replaces, io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyN(w, d.file, d.Size-header.replaces) // by the kernel: both are files
	return err
}

// finish returns the draft that becomes the session file, all of it in its file, the session's report, and what changes
// at the file's beginning.
func (r *Rebuilder) finish(sessionID string, now time.Time) (d *draft, report Report, header newHeader, err error) {
	// A chat that is pending (thread.Pending) is no turn: no agent has had it.
	if d := r.current(); d == nil || d.convertedLast { // else nobody has answered the turns of runs, either
		if err := r.convertChats(true); err != nil {
			return nil, report, header, err
		}
	}
	if d = r.current(); d == nil {
		return nil, report, header, ErrNoSession
	}
	if err = d.out.Flush(); err == nil && r.Amend {
		err = d.amend()
	}
	report = d.Report
	if err != nil {
		return d, report, header, err
	}
	report.Session = cmp.Or(d.Session, sessionID)
	report.Unrelated = r.unrelated + len(r.prompts) + len(r.chats)
	report.Cwd = cmp.Or(r.Cwd, d.OldCwd, r.DefaultCwd)
	header, err = d.headerFor(&report, now)
	report.End = session.Position{Offset: report.Size, Index: report.Lines + d.breaks}
	return d, report, header, err
}

// newHeader is the first line of a session file where that is not the draft's.
type newHeader struct {
	line     []byte // with its newline; nil where the draft's first line stays
	replaces int64  // bytes of the draft, whose header the line replaces
}

// headerFor returns the header for the report's Cwd, and adds to the report what it changes. It makes one where the
// thread holds none.
func (d *draft) headerFor(report *Report, now time.Time) (h newHeader, err error) {
	switch {
	case d.header:
		if report.Cwd == report.OldCwd || d.dialect.SetCwd == nil {
			return h, nil
		}
		old, err := bufio.NewReader(io.NewSectionReader(d.file, d.start, d.Size)).ReadBytes('\n')
		isHeader := d.dialect.Decode(old).Kind == session.Header // and not a line that stands before it
		if err != nil || !isHeader {
			return h, err
		}
		h.line, h.replaces = append(d.dialect.SetCwd(bytes.TrimSpace(old), report.Cwd), '\n'), int64(len(old))
	case d.dialect.Header != nil:
		h.line = append(d.dialect.Header(report.Session, report.Cwd, now), '\n')
		report.Lines++
		report.Known = true
	}
	report.Size += int64(len(h.line)) - h.replaces
	return h, nil
}

// Close closes the drafts, which are gone then.
func (r *Rebuilder) Close() error {
	var err error
	for _, d := range r.drafts {
		err = errors.Join(err, d.file.Close())
	}
	return err
}
