// Package mirror ships the lines of a session file to a thread.
//
// A Mirror works in passes: Sync reads from its position to the end of the file, posts what it finds and moves the position when the server
// has said that it is durable. Run decides when to pass. The session file is the spool: nothing is kept elsewhere, a pass that failed is made
// again, and because a line's id follows from the file (Namer), a line that is posted twice is there once. Lines are posted in their order; a
// single entry that the server won't have is replaced by a stub and holds nobody up.
//
// The package reads one file and writes none but a Mirror's notes. It doesn't say what became of the run.
package mirror

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Limits of one post. It is durable as a whole, so it is kept small enough to be done in a moment.
const (
	batchLines = 500
	batchBytes = 512 << 10
)

// How often Run looks when nothing tells it to, and how long it waits after a pass that failed.
const (
	poll      = 500 * time.Millisecond
	findEvery = 20 * time.Millisecond // for a file that is not known yet
	firstWait = 200 * time.Millisecond
	mostWait  = 10 * time.Second
)

// Mirror ships one session file. Fill in the fields before the first call and leave them alone afterwards.
type Mirror struct {
	Encoder
	// Path is the file's. Where it is "", Find is asked for it and for the session's id before each pass, and gives "" as long as there is none.
	Path string
	Find func() (path, sessionID string)
	// Named says that a person named the file. Nothing of it is posted before a line of it is known to the dialect:
	// what is no session stays where it is.
	Named bool
	// From is where an earlier Mirror of the same file got to; the zero value is the start.
	From session.Position
	// Notes is the path of a file in which the Mirror writes down what a later one of the same session file needs to
	// go on without reading what is posted; "" for none. The later one begins where the notes end, or at From, where
	// that is further on.
	Notes string
	// Until is the index of the line that the mirror ends before; 0 for the file's end.
	Until int
	// Append makes entries durable on the thread, all or none; see thread.Client.Append.
	Append func(context.Context, []thread.Entry) error
	// Gate, where there is one, comes before each pass; none is made while it fails.
	Gate func(context.Context) error
	// Saved, where there is one, is told of each position that was reached. An error of it stops the pass.
	Saved func(session.Position) error
	Log   *slog.Logger

	reader  *session.Reader
	watch   *session.Watch   // of Run
	batch   []thread.Entry   // read, and not all of it acknowledged
	pending []thread.Entry   // what is left of the batch, as it is posted
	refused map[string]int   // how often the server has refused one of the batch, by id
	next    session.Position // after the last line of the batch
	posted  atomic.Int64
	notes   notes
}

// ReadError is the error of a pass that could not read the session file.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ReadError) Unwrap() error { return e.Err }

// Posted is how many lines are on the thread, those that were there before From included. It may be called at any time.
func (m *Mirror) Posted() int64 { return m.posted.Load() }

// Sync makes one pass: it posts the lines up to the end of the file. It returns nil when all are durable.
func (m *Mirror) Sync(ctx context.Context) error { return m.pass(ctx, (*session.Reader).Next) }

// Drain is Sync for a file whose writer is gone: a last line without a newline is posted, too.
func (m *Mirror) Drain(ctx context.Context) error { return m.pass(ctx, (*session.Reader).Rest) }

// Close releases the file, and what Run watched it with. (The kernel takes a while to end a watch, which nobody who waits for a run's end should.)
func (m *Mirror) Close() (err error) {
	if m.watch != nil {
		err = m.watch.Close()
	}
	if m.reader != nil {
		err = errors.Join(err, m.reader.Close())
	}
	if m.notes.f != nil {
		err = errors.Join(err, m.notes.f.Close())
	}
	return err
}

// Run makes a pass whenever the file may have changed, until ctx is done. It returns nil then: what went wrong is logged and tried again.
func (m *Mirror) Run(ctx context.Context) error {
	wait, failed := firstWait, ""
	for ctx.Err() == nil {
		err := m.Sync(ctx)
		if err == nil {
			wait, failed = firstWait, ""
			m.wait(ctx)
			continue
		}
		if ctx.Err() != nil {
			break
		}
		if err.Error() != failed { // the same again is not news
			m.Log.Warn("lines wait for the thread", "error", err)
			failed = err.Error()
		}
		pause(ctx, wait/2+rand.N(wait/2))
		wait = min(2*wait, mostWait)
	}
	return nil
}

// wait returns when there may be more to post.
func (m *Mirror) wait(ctx context.Context) {
	if m.Path == "" {
		pause(ctx, findEvery)
		return
	}
	if m.watch == nil {
		m.watch = session.NewWatch(m.Path)
	}
	m.watch.Wait(ctx, poll)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (m *Mirror) pass(ctx context.Context, next func(*session.Reader) (session.Line, error)) error {
	if m.Gate != nil {
		if err := m.Gate(ctx); err != nil {
			return err
		}
	}
	if m.Path == "" && m.Find != nil {
		m.Path, m.Session = m.Find()
	}
	if m.Path == "" {
		return nil
	}
	if m.reader == nil {
		if err := m.open(); err != nil {
			return err
		}
	}
	for {
		if err := m.fill(next); err != nil {
			return err
		}
		if len(m.batch) == 0 {
			return nil
		}
		if err := m.ship(ctx); err != nil {
			return err
		}
		m.posted.Add(int64(len(m.batch)))
		clear(m.batch) // a line can be large: don't hold on to it
		m.batch, m.pending, m.refused = m.batch[:0], nil, nil
		m.note(m.reader)
		if m.Saved != nil {
			if err := m.Saved(m.next); err != nil {
				return err
			}
		}
	}
}

// open starts the reader and brings the encoder to where it was at From, or at the end of the notes.
func (m *Mirror) open() error {
	reader := session.NewReader(m.Path, session.Position{})
	if m.Named {
		reader = session.NewSessionReader(m.Path, m.Dialect)
	}
	reader.Until(m.Until)
	if err := m.catchUp(reader); err != nil {
		m.restart() // the next pass begins anew
		return &ReadError{errors.Join(err, reader.Close())}
	}
	m.reader, m.next = reader, reader.Position()
	m.posted.Store(int64(m.next.Index))
	return nil
}

// catchUp takes what earlier Mirrors have posted.
func (m *Mirror) catchUp(reader *session.Reader) error {
	if m.Notes != "" {
		known, err := m.recall(reader)
		if err != nil {
			return err
		}
		if !known {
			if err := reader.Reset(); err != nil {
				return err
			}
			m.restart()
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
	m.restart()
	m.noting = m.Notes != ""
	return reader.Reset()
}

// restart brings the encoder to the file's start, as if no line had come, and leaves the notes so far.
func (m *Mirror) restart() {
	m.Namer = Namer{Dialect: m.Dialect, Session: m.Session, Known: m.Known}
	m.prompted, m.decoder, m.last, m.calls = false, session.Decoder{}, time.Time{}, nil
	if m.notes.f != nil {
		_ = m.notes.f.Close() // nothing of it is waited for
	}
	m.notes = notes{}
}

// fill reads lines until a batch is full or the file is at its end.
func (m *Mirror) fill(next func(*session.Reader) (session.Line, error)) error {
	if len(m.pending) > 0 {
		return nil // the last pass failed: the same again
	}
	defer func() { m.pending = m.batch }()
	for size := 0; len(m.batch) < batchLines && size < batchBytes; {
		line, err := next(m.reader)
		var changed *session.ChangedError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &changed):
			m.Log.Warn("the session file changed; reading it from its start for what is new", "path", changed.Path, "how", changed.How)
			m.Restart()
			if err := m.reader.Reset(); err != nil {
				return &ReadError{err}
			}
			continue
		case err != nil:
			return &ReadError{err}
		}
		entry, fresh := m.Encode(line)
		m.next = line.End
		if fresh {
			m.batch = append(m.batch, entry)
			size += len(entry.Payload)
		}
	}
	return nil
}

// ship posts what is pending until each is on the thread or known to be refused for good. What it has changed of an entry stays changed: should the
// answer have been lost, the same is posted again.
func (m *Mirror) ship(ctx context.Context) error {
	for len(m.pending) > 0 {
		err := m.Append(ctx, m.pending)
		if err == nil {
			m.pending = nil
			return nil
		}
		var se *thread.StatusError
		if !errors.As(err, &se) {
			return err
		}
		rest, mended := m.mend(m.pending, se.Entries)
		if !mended {
			return err // the server complains of what was not posted
		}
		m.pending = rest
	}
	return nil
}

// mend is entries less those that are there already, and with something smaller for each that was refused: first the entry cut, where it was too
// large, then a stub. What is refused even so is left out. false where bad names none of the entries.
func (m *Mirror) mend(entries []thread.Entry, bad []thread.BadEntry) ([]thread.Entry, bool) {
	if m.refused == nil {
		m.refused = map[string]int{}
	}
	by := map[string]thread.BadEntry{}
	for _, b := range bad {
		by[b.ID] = b
	}
	var rest []thread.Entry
	mended := false
	for _, e := range entries {
		b, is := by[e.ID]
		if !is {
			rest = append(rest, e)
			continue
		}
		mended = true
		if b.Status == http.StatusConflict {
			continue // delivered, by whomever: what is there stays
		}
		m.refused[e.ID]++
		switch {
		case m.refused[e.ID] == 1 && b.Status == http.StatusRequestEntityTooLarge:
			m.Log.Warn("a line is too large for the server; posting it cut", "id", e.ID, "bytes", len(e.Payload), "reason", b.Reason)
			rest = append(rest, trimmed(e, m.Dialect.Prefix, b.Reason))
		case m.refused[e.ID] <= 2:
			m.Log.Warn("the server refuses a line; posting a stub for it", "id", e.ID, "reason", b.Reason)
			m.refused[e.ID] = 2
			rest = append(rest, stub(e, m.Dialect.Prefix, b.Reason))
		default:
			m.Log.Error("the server refuses a line and its stub; leaving it out", "id", e.ID, "reason", b.Reason)
		}
	}
	return rest, mended
}
