package mirror

import (
	"errors"
	"io"
	"time"

	"arbe.0sk.ar/runner/session"
)

// lookLines is how many lines a scout reads before it lets others have the Mirror.
const lookLines = 256

// scout reads the session file for Tally where the Mirror's own reader is elsewhere in it. It decodes lines and names
// them, and encodes none. As soon as the Mirror's reader is at the scout's position, Tally gets its lines from there
// again and the scout ends. Only where the file has changed meanwhile may that never be: the scout stays then.
type scout struct {
	Encoder
	reader *session.Reader
	behind bool // it began at the file's start: lines that an earlier Mirror has posted are new to Tally
	apart  bool // the file has changed: equal positions need not be equal places
}

// open finds the file, starts the reader and brings the encoder to where it was at From, or at the end of the notes. It
// returns false as long as there is no file to be found. The caller holds the lock, as that of all functions here.
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

// catchUp takes what earlier Mirrors have posted.
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
	// Not the file that the position was made of. From its start nothing is lost, and what is there already is not
	// doubled.
	m.Log.Warn("the saved position does not fit the session file; mirroring it from its start", "path", m.Path)
	m.restart(first)
	m.noting = m.Notes != ""
	return reader.Reset()
}

// restart brings the encoder to the file's start, as if no line had come, and leaves the notes so far.
func (m *Mirror) restart(sessionID string) {
	m.Namer = Namer{Dialect: m.Dialect, Session: sessionID, Known: m.Known}
	m.prompted, m.decoder, m.last, m.calls = false, session.Decoder{}, time.Time{}, nil
	if m.notes.f != nil {
		_ = m.notes.f.Close() // nothing of it is waited for
	}
	m.notes = notes{}
}

// fill reads lines into the batch until that is full or the file is at its end. A batch on its way to the thread is
// full.
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

func (m *Mirror) full() bool { return m.posting || len(m.batch) >= batchLines || m.size >= batchBytes }

// look passes some of the lines that have come to Tally, and reports whether there may be more.
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

// lookAhead passes the scout's next lines to Tally.
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

// next returns a reader's next line. Where the file has changed, that is the first one again.
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
			m.Log.Warn("the session file changed; reading it from its start for what is new",
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

// meet ends the scout where the Mirror's reader is at its position.
func (m *Mirror) meet() {
	if s := m.scout; s != nil && !s.apart && s.reader.Position() == m.reader.Position() {
		m.endScout()
	}
}

func (m *Mirror) endScout() {
	_ = m.scout.reader.Close() // read only: nothing to lose
	m.scout = nil
}

// count passes a line to Tally, where it is a new one and of the run.
func (m *Mirror) count(e *Encoder, l session.Line, dec session.Entry, name Name) {
	if name.Again || name.Supersedes != "" {
		return
	}
	m.seen.Add(1)
	if m.Tally != nil && (l.Start.Index >= m.RunFrom || e.Restarted()) {
		m.Tally(name.ID, dec)
	}
}
