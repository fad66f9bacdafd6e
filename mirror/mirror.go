// Package mirror ships the lines of a session file to a thread.
//
// A Mirror reads, decodes and names each line of the file once: it passes the line to Tally and encodes it into the
// next post. Sync posts what the file has behind the last acknowledged line; Run decides when. Look reads and posts
// nothing, so that Tally gets every line while the thread is out of reach. It fills the next post. Where that does not
// get through, a scout reads ahead for Tally alone, and these lines are read a second time when they are posted: the
// session file is the spool. A Mirror that lags behind its file holds one post in memory, and a hash of each id.
//
// Lines are posted in their order. A post that failed is repeated. The id of a line follows from the file (Namer), so a
// line that is posted twice is on the thread once. A stub replaces an entry that the server refuses, and the lines
// behind it are posted.
//
// The package reads session files and writes no file but a Mirror's notes. How the run ended is for Tally to decide.
package mirror

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Limits of one post. It is durable as a whole, so it is kept small enough to be done in a moment.
const (
	batchLines = 500
	batchBytes = 256 << 10
)

// How often Run looks when nothing tells it to, and how long it waits after a pass that failed.
const (
	poll      = 500 * time.Millisecond
	findEvery = 20 * time.Millisecond // for a file that is not known yet
	firstWait = 200 * time.Millisecond
	mostWait  = 10 * time.Second
)

// scoutAfter is how long a batch may be on its way before lines are read that it has no room for.
const scoutAfter = 2 * time.Second

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
	// Tally, where there is one, gets the run's lines (RunFrom) once each and in their order, as soon as they are read
	// and before they are posted: a line's id, and what it decodes to, which is good until Tally returns. It is called
	// with the Mirror locked.
	Tally func(id string, e session.Entry)
	// Gate, where there is one, comes before each pass; none is made while it fails.
	Gate func(context.Context) error
	// Saved, where there is one, gets each position that was reached. An error of it stops the pass.
	Saved func(session.Position) error
	Log   *slog.Logger

	posted, seen atomic.Int64

	// Of the pass that is being made.
	watch   *session.Watch // of Run
	pending []thread.Entry // what is left of the batch on its way, as it is posted
	refused map[string]int // how often the server has refused one of the batch, by id

	mu      sync.Mutex // guards the Encoder, Path, and what follows; it is not held while entries are posted
	reader  *session.Reader
	scout   *scout           // nil where the reader is where Tally is
	batch   []thread.Entry   // read, and not all of it acknowledged
	size    int              // of the batch: bytes
	posting bool             // the batch is on its way: pending has what is left of it
	stuck   time.Time        // since when Look has found the batch full; zero where it has not
	end     session.Position // after the last line of the batch
	notes   notes
}

// ReadError is the error of a pass that could not read the session file.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ReadError) Unwrap() error { return e.Err }

// Posted is how many lines are on the thread, those that were there before From included. It may be called at any time.
func (m *Mirror) Posted() int64 { return m.posted.Load() }

// Seen is how many lines Tally could count so far: those of the run, and those before it.
func (m *Mirror) Seen() int64 { return m.seen.Load() }

// Tallied returns the position behind the last line that was read for Tally.
func (m *Mirror) Tallied() session.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.scout != nil:
		return m.scout.reader.Position()
	case m.reader != nil:
		return m.reader.Position()
	}
	return session.Position{}
}

// Sync makes one pass: it posts the lines up to the end of the file. It returns nil when all are durable. One pass is
// made at a time; Look may be called meanwhile.
func (m *Mirror) Sync(ctx context.Context) error { return m.pass(ctx, false) }

// Drain is Sync for a file whose writer is gone: a last line without a newline is posted, too.
func (m *Mirror) Drain(ctx context.Context) error { return m.pass(ctx, true) }

// Look passes the lines up to the end of the file to Tally, and posts none. It waits for no network. While posts get
// through it may leave out lines that the next one is to have. last reports that the file's writer is gone: all lines
// count then, and so does one without a newline at the end. Errors are of the type *ReadError.
func (m *Mirror) Look(last bool) error {
	for {
		m.mu.Lock()
		more, err := m.look(last)
		m.mu.Unlock()
		if !more {
			return err
		}
	}
}

// Close releases the files, and what Run watched them with. (The kernel takes some milliseconds to end a watch. Close
// after whatever somebody waits for.)
func (m *Mirror) Close() (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watch != nil {
		err = m.watch.Close()
	}
	if m.scout != nil {
		m.endScout()
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
	m.mu.Lock()
	path := m.Path
	m.mu.Unlock()
	if path == "" {
		pause(ctx, findEvery)
		return
	}
	if m.watch == nil {
		m.watch = session.NewWatch(path)
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

func (m *Mirror) pass(ctx context.Context, last bool) error {
	if m.Gate != nil {
		if err := m.Gate(ctx); err != nil {
			return err
		}
	}
	for {
		if more, err := m.load(last); !more {
			return err
		}
		if err := m.ship(ctx); err != nil {
			return err
		}
		at := m.shipped()
		if m.Saved != nil {
			if err := m.Saved(at); err != nil {
				return err
			}
		}
	}
}

// load makes the next batch ready to be posted, and reports whether there is one. The lines of a batch count for Tally
// before they are posted: the file may change right afterwards.
func (m *Mirror) load(last bool) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ok, err := m.open(); !ok {
		return false, err
	}
	err := m.fill(last)
	if len(m.batch) == 0 {
		return false, err
	}
	if err != nil { // what was read before it is posted, and the next pass has the error again
		m.Log.Debug("the session can't be read now", "error", err)
	}
	for more := m.scout != nil && !m.scout.behind; more; {
		if more, err = m.lookAhead(last); err != nil {
			m.Log.Debug("the session can't be read now", "error", err)
		}
	}
	if !m.posting {
		m.posting, m.pending = true, m.batch
	}
	return true, nil
}

// shipped takes note that the batch is on the thread, and returns its end.
func (m *Mirror) shipped() session.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.posted.Add(int64(len(m.batch)))
	clear(m.batch) // a line can be large: don't hold on to it
	m.batch, m.size, m.posting, m.refused = m.batch[:0], 0, false, nil
	m.stuck = time.Time{}
	m.note(m.reader)
	return m.end
}
