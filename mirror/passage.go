package mirror

import (
	"errors"
	"log/slog"

	"arbe.0sk.ar/runner/session"
)

// Passage decodes and names the lines of a session file that a resume compares with its thread, before a Mirror
// continues the file. It writes the Mirror's notes about the lines at the file's beginning that the thread has: a
// Mirror with the same Notes reads none of them again. Close it when done.
type Passage struct {
	m      Mirror          // for its Encoder and notes
	reader *session.Reader // identifies the file in the notes
	at     session.Position
}

// NewPassage returns a Passage at the start of the file at path. notes is the path of the notes; "" for none.
func NewPassage(n Namer, path, notes string) *Passage {
	p := &Passage{reader: session.NewReader(path, session.Position{})}
	p.m.Namer, p.m.Notes, p.m.noting, p.m.Log = n, notes, notes != "", slog.New(slog.DiscardHandler)
	return p
}

// Next decodes and names the file's next line. A torn line gets no note: the agent continues behind its newline.
func (p *Passage) Next(l session.Line) (session.Entry, Name) {
	if l.Torn {
		p.note()
		p.Stop()
	}
	return p.m.Encoder.next(l)
}

// Posted records that the thread has the line that Next has named.
func (p *Passage) Posted(l session.Line) {
	if p.at = l.End; p.at.Index%batchLines == 0 {
		p.note()
	}
}

// Stop ends the notes, because the thread lacks the line that Next has named.
func (p *Passage) Stop() { p.m.stopNoting() }

// Close writes the last note and closes the files. Notes that can't be written cost another reading.
func (p *Passage) Close() error {
	p.note()
	return errors.Join(p.m.Close(), p.reader.Close())
}

func (p *Passage) note() {
	if !p.m.noting || len(p.m.fresh) == 0 {
		return
	}
	if ok, err := p.reader.Resume(p.at); !ok || err != nil {
		p.Stop()
		return
	}
	p.m.note(p.reader)
}
