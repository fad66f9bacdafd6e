package mirror

import (
	"errors"
	"io"
	"time"

	"arbe.0sk.ar/runner/session"
)

// lookLines is how many lines a scout reads before it unlocks the Mirror.
const lookLines = 256

// scout reads the session file for Tally from another position than the Mirror's reader: ahead of it while posts are
// not acknowledged, or behind it where an earlier Mirror has posted lines of the run. It decodes and names lines, and
// encodes none. It ends when both are at the same position; from there on Tally gets the lines from the Mirror's
// reader. Once the file has changed under either, the scout stays: both then read the file on their own.
type scout struct {
	Encoder
	reader *session.Reader
	behind bool // it began at the file's start, to read what an earlier Mirror posted
	apart  bool // the file has changed: the same position need not be the same line
}

// open finds the file, opens the reader and brings the Encoder to From, or to the end of the notes. It returns false
// while Find returns no path. The caller of each function in this file holds the lock.
func (m *Mirror) open() (bool, error) {
	if m.Path == "" && m.Find != nil {
		m.Path, m.Session = m.Find()
	}
	if m.Path == "" || m.reader != nil {
		return m.Path != "", nil
	}
	first, reader := m.Session, m.newReader()
	if err := m.catchUp(reader); err != nil {
		m.restart(first) // the next pass begins anew
		return false, &ReadError{errors.Join(err, reader.Close())}
	}
	m.reader, m.end = reader, reader.Position()
	m.posted.Store(int64(m.end.Index))
	if m.Tally != nil && m.end.Index > m.RunFrom {
		namer := Namer{Dialect: m.Dialect, Session: first, Known: m.Known}
		m.scout = &scout{Encoder: Encoder{Namer: namer}, reader: m.newReader(), behind: true}
		return true, nil
	}
	m.seen.Store(int64(m.end.Index))
	return true, nil
}

func (m *Mirror) newReader() *session.Reader {
	reader := session.NewReader(m.Path, session.Position{})
	if m.Named {
		reader = session.NewSessionReader(m.Path, m.Dialect)
	}
	reader.Until(m.Until)
	return reader
}

// catchUp brings reader and Encoder behind the lines that earlier Mirrors have posted.
func (m *Mirror) catchUp(reader *session.Reader) error {
	first := m.Session
	if m.Notes != "" {
		known, err := m.recall(reader)
		if err != nil {
			return err
		}
		if !known {
			if err := reader.Reset(); err != nil {
				return err
			}
			m.restart(first)
		}
		m.noting = true
	}
	start := reader.Position()
	for reader.Position().Offset < m.From.Offset {
		line, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		m.Skip(line)
		if line.End.Index%batchLines == 0 {
			m.note(reader)
		}
	}
	if at := reader.Position(); at == m.From || at == start && at.Offset > m.From.Offset {
		return nil
	}
	// Another file than that of From. Lines that are on the thread have their ids again: posting them adds nothing.
	m.Log.Warn("saved position is not in this session file; posting it from its start", "path", m.Path)
	m.restart(first)
	m.noting = m.Notes != ""
	return reader.Reset()
}

// restart brings the Encoder to the file's start, and drops the notes so far.
func (m *Mirror) restart(sessionID string) {
	m.Namer = Namer{Dialect: m.Dialect, Session: sessionID, Known: m.Known}
	m.prompted, m.decoder, m.last, m.calls = false, session.Decoder{}, time.Time{}, nil
	if m.notes.f != nil {
		_ = m.notes.f.Close() // the notes begin again
	}
	m.notes = notes{}
}

// fill reads and encodes lines into the batch, until the batch is full or the file ends.
func (m *Mirror) fill(last bool) error {
	for !m.full() {
		m.meet()
		line, err := m.next(m.reader, &m.Encoder, last)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &ReadError{err}
		}
		dec, name := m.Encoder.next(line)
		if m.scout == nil {
			m.count(&m.Encoder, line, dec, name)
		}
		m.end = line.End
		if name.Again {
			continue
		}
		entry := m.encode(line, dec, name)
		m.batch = append(m.batch, entry)
		m.size += len(entry.Payload)
	}
	return nil
}

// full reports that the batch takes no further line.
func (m *Mirror) full() bool { return m.posting || len(m.batch) >= batchLines || m.size >= batchBytes }

// look makes one step of Look, and reports whether there may be more lines.
func (m *Mirror) look(last bool) (more bool, err error) {
	if ok, err := m.open(); !ok {
		return false, err
	}
	if err := m.fill(last); err != nil {
		return false, err
	}
	if m.scout == nil {
		if !m.full() || m.Tally == nil {
			return false, nil
		}
		if m.stuck.IsZero() {
			m.stuck = time.Now()
		}
		if !last && time.Since(m.stuck) < scoutAfter {
			return false, nil
		}
		reader, err := m.reader.Fork()
		if err != nil {
			return false, &ReadError{err}
		}
		m.scout = &scout{Encoder: m.ahead(), reader: reader}
	}
	return m.lookAhead(last)
}

// lookAhead passes up to lookLines lines of the scout to Tally, and reports whether there may be more.
func (m *Mirror) lookAhead(last bool) (more bool, err error) {
	s := m.scout
	for range lookLines {
		if s.behind {
			if m.meet(); m.scout == nil {
				return true, nil
			}
		}
		line, err := m.next(s.reader, &s.Encoder, last)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, &ReadError{err}
		}
		dec, name := s.next(line)
		m.count(&s.Encoder, line, dec, name)
	}
	return true, nil
}

// next returns the next line of r, whose Encoder is e. Where the file has changed, both begin again at its start.
func (m *Mirror) next(r *session.Reader, e *Encoder, last bool) (session.Line, error) {
	for {
		next := r.Next
		if last {
			next = r.Rest
		}
		line, err := next()
		var changed *session.ChangedError
		if !errors.As(err, &changed) {
			return line, err
		}
		if r == m.reader {
			m.Log.Warn("session file changed; reading it again from its start",
				"path", changed.Path, "how", changed.How)
		}
		if m.scout != nil {
			m.scout.apart = true
		}
		e.Restart()
		if err := r.Reset(); err != nil {
			return session.Line{}, err
		}
	}
}

// meet ends the scout where it and the Mirror's reader are at the same position.
func (m *Mirror) meet() {
	if s := m.scout; s != nil && !s.apart && s.reader.Position() == m.reader.Position() {
		m.endScout()
	}
}

func (m *Mirror) endScout() {
	_ = m.scout.reader.Close() // read only: nothing to lose
	m.scout = nil
}

// count passes a line to Tally, unless it was in the file before the file changed, or comes before the run.
func (m *Mirror) count(e *Encoder, l session.Line, dec session.Entry, name Name) {
	if name.Again || name.Supersedes != "" {
		return
	}
	m.seen.Add(1)
	if m.Tally != nil && (l.Start.Index >= m.RunFrom || e.Restarted()) {
		m.Tally(name.ID, dec)
	}
}
