package hydrate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// draft is the file of one session, as far as the entries have come.
type draft struct {
	Report // of the lines so far; its Session is "" as long as no line names it

	dialect session.Dialect
	file    *os.File // without a name
	out     *bufio.Writer
	start   int64 // where in file the session file begins; more than 0 after a migration

	ids    idSet // the lines' ids
	header bool  // a line is the header
	gap    bool  // the line before was lost
	breaks int   // newlines within lines, which no mirror posts
	named  bool  // file has become the session file
	next   int   // the number of the next line, where lines carry one

	// Of converted turns.
	converted     map[string]bool // the Keys of their lines
	convertedLast bool            // the last line is one
	reply         string          // the reply that the turns right before are parts of
	calls         map[string]bool // tool calls without a result

	migration *migration // nil for a file in a current format
}

// current returns the draft of the last line or turn, nil for none, and where another session has begun.
func (r *Rebuilder) current() *draft {
	if len(r.drafts) == 0 || r.fresh {
		return nil
	}
	return r.drafts[len(r.drafts)-1]
}

// draftOf returns the draft of a line's session, and makes it the current one.
func (r *Rebuilder) draftOf(at thread.SessionRef) (*draft, error) {
	r.of, r.fresh = "", false
	i := r.indexOf(at.ID)
	if i < 0 && at.Index > 0 { // the line continues a file that was made of converted turns
		i = r.indexOf("")
	}
	if i < 0 {
		return r.newDraft(at.ID)
	}
	d := r.drafts[i]
	d.Session = at.ID
	if i < len(r.drafts)-1 {
		r.drafts = append(slices.Delete(r.drafts, i, i+1), d)
	}
	return d, nil
}

// indexOf returns the index of a session's draft, -1 for none.
func (r *Rebuilder) indexOf(sessionID string) int {
	for i, d := range slices.Backward(r.drafts) {
		if d.Session == sessionID {
			return i
		}
	}
	return -1
}

// newDraft begins a session, and makes its draft the current one. Where there are maxSessions, the first one goes.
func (r *Rebuilder) newDraft(sessionID string) (*draft, error) {
	if len(r.drafts) >= maxSessions {
		if err := r.drafts[0].file.Close(); err != nil {
			return nil, err
		}
		r.drafts = slices.Delete(r.drafts, 0, 1)
	}
	if err := os.MkdirAll(r.TempDir, 0o700); err != nil {
		return nil, err
	}
	f, err := durable.Unnamed(r.TempDir)
	if err != nil {
		return nil, err
	}
	d := &draft{
		Report: Report{Session: sessionID}, dialect: r.Dialect, file: f, out: bufio.NewWriterSize(f, 256<<10),
		ids: newIDSet(), converted: map[string]bool{}, calls: map[string]bool{},
	}
	if d.dialect.Header != nil { // it counts as a line, and Write makes it where the thread has none
		d.next = d.dialect.Decode(d.dialect.Header("made", "", time.Time{})).Next
	}
	r.drafts = append(r.drafts, d)
	return d, nil
}

// add adds the line of an entry. Where the entry doesn't hold it, a filler with its id takes its place, so that the
// lines after it keep their past.
func (d *draft) add(e Entry) error {
	held := e.Line != nil
	if !held {
		d.lose(e.Fields)
		if e.Fields.Session.Entry == nil || d.dialect.Filler == nil {
			return nil
		}
		e.Line = d.dialect.Filler(*e.Fields.Session.Entry, deref(e.Fields.Session.Parent), e.Time())
	}
	dec := e.outline(d.dialect)
	if err := d.bridge(dec.Parent, e); err != nil {
		return err
	}
	if dec.Kind == session.Header {
		d.header = true
		if dec.Old && d.migration == nil {
			d.migration = &migration{old: map[string]place{}}
		}
	}
	if e.Fields.Truncated && held {
		d.Cut++
	}
	d.gap, d.convertedLast, d.reply = !held, false, ""
	d.migration.keep(e.ID, d.start+d.Size, len(e.Line))
	return d.put(e.Line, dec, e.ID)
}

// bridge adds a filler for the parent of a line, where that was lost together with its id.
func (d *draft) bridge(parent string, e Entry) error {
	if !d.gap || parent == "" || d.ids.has(parent) || d.dialect.Filler == nil {
		return nil
	}
	filler := d.dialect.Filler(parent, d.Leaf, e.Time())
	return d.put(filler, d.dialect.Decode(filler), e.ID)
}

// lose reports a line that the thread doesn't hold.
func (d *draft) lose(p thread.Line) {
	why := p.Reason
	if p.Kind == thread.KindLong {
		why = "longer than what is read of a line"
	}
	d.Lost = append(d.Lost, fmt.Sprintf("line %d, %d bytes: %s", p.Session.Index, p.Bytes, why))
	d.gap = true
}

// amend adds the line that the dialect's Amend returns for the draft. All of that is in its file.
func (d *draft) amend() error {
	if d.dialect.Amend == nil {
		return nil
	}
	line, err := d.dialect.Amend(durable.Path(d.file))
	if err != nil || line == nil {
		return err
	}
	d.Amended = true
	return errors.Join(d.put(line, d.dialect.Decode(line), d.Last), d.out.Flush())
}

// put appends a line, which decodes to dec, to the file. entryID is the id of its entry.
func (d *draft) put(line []byte, dec session.Entry, entryID string) error {
	d.count(line, dec)
	if dec.ID != "" && dec.Kind != session.Header {
		d.ids.add(dec.ID)
		d.Leaf = dec.ID
	}
	if dec.Next > 0 || dec.Kind == session.Header {
		d.next = dec.Next
	}
	for _, call := range dec.Calls {
		d.calls[call.ID] = true
	}
	if dec.Kind == session.ToolResult {
		delete(d.calls, dec.ToolCallID)
	}
	d.Last = entryID
	_, err := d.out.Write(line)
	return errors.Join(err, d.out.WriteByte('\n'))
}

// count adds a line, whose parent may be the Leaf, to the report.
func (d *draft) count(line []byte, dec session.Entry) {
	switch dec.Kind {
	case session.User, session.Assistant, session.ToolResult:
		d.Turns++
		if dec.Parent != d.Leaf && d.Leaf != "" {
			d.Branches++
		}
	}
	if bytes.Contains(line, []byte("[redacted:")) {
		d.Redacted++
	}
	if dec.Cwd != "" {
		d.OldCwd = dec.Cwd
	}
	if !dec.Began.IsZero() {
		d.Began = dec.Began
	}
	if d.Known = d.Known || dec.Known; dec.Kind == session.Text {
		d.breaks += bytes.Count(line, []byte("\n"))
	}
	d.Lines++
	d.Size += int64(len(line)) + 1
}
