// Package mirror ships the lines of a session file to a thread.
//
// A Mirror reads, decodes and names each line of the file once: it passes the line to Tally and encodes it into the
// next post. Sync posts the lines behind the last acknowledged one; Run decides when. Look reads and posts nothing, so
// that Tally gets every line while the thread is out of reach: it fills the next post, and where that is not
// acknowledged a scout reads ahead for Tally alone. Those lines are read a second time when they are posted: the
// session file is the spool. A Mirror that lags behind its file holds one post in memory, and a hash of each id.
//
// Lines are posted in their order. A failed post is repeated. The id of a line follows from the file (Namer), so a line
// that is posted twice is on the thread once. A stub replaces an entry that the server refuses, so that one entry never
// blocks the others.
//
// The package reads session files, and writes a Mirror's notes and no other file. It decides nothing about the run.
package mirror

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Limits of one post. The server syncs a post as a whole: a small one is acknowledged soon, and takes little memory.
const (
	batchLines = 500
	batchBytes = 256 << 10
)

// How often Run makes a pass without a file event, and how long it waits after a pass that failed.
const (
	poll      = 500 * time.Millisecond
	findEvery = 20 * time.Millisecond // while Find returns no path
	firstWait = 200 * time.Millisecond
	mostWait  = 10 * time.Second
)

// scoutAfter is how long a full batch may wait for its acknowledgement before a scout reads the lines behind it.
const scoutAfter = 2 * time.Second

// Mirror ships one session file. Set the fields before the first call, and none after it.
type Mirror struct {
	Encoder
	// Path is the file's path. Where it is "", each pass calls Find first, which returns the path and the session's id,
	// and "" while there is no file.
	Path string
	Find func() (path, sessionID string)
	// Named reports that a person named the file. No line is posted before the dialect understands one of them: a file
	// that is no session is not posted.
	Named bool
	// From is the position behind the lines that earlier Mirrors of the same file have posted; the zero value is the
	// start.
	From session.Position
	// Notes is the path of the Mirror's notes; "" for none. With them a later Mirror of the same session file reads no
	// line that is posted: it begins where the notes end, or at From where that is further on.
	Notes string
	// Until is the index of the first line that is not read; 0 for the file's end.
	Until int
	// Append makes entries durable on the thread, all or none; see client.Client.Append.
	Append func(context.Context, []thread.Entry) error
	// Tally, where there is one, gets each line of the run (from RunFrom on) once, in the file's order, before the line
	// is posted: its id and its decoded form, which is valid until Tally returns. The Mirror is locked meanwhile.
	Tally func(id string, e session.Entry)
	// Gate, where there is one, is called before each pass. Its error ends the pass.
	Gate func(context.Context) error
	// Saved, where there is one, gets the position behind each acknowledged post. Its error ends the pass.
	Saved func(session.Position) error
	Log   *slog.Logger

	posted, seen atomic.Int64

	// Owned by the pass, of which there is one at a time.
	watch   *session.Watch // of Run
	pending []thread.Entry // the entries of the batch that are still to be posted, changed where the server refused one
	refused map[string]int // refusals of an entry of the batch, by id

	mu      sync.Mutex // guards the Encoder, Path, and the fields below; not held while entries are posted
	reader  *session.Reader
	scout   *scout           // nil where Tally gets the lines from reader
	batch   []thread.Entry   // read and not acknowledged
	size    int              // of the batch's payloads, in bytes
	posting bool             // the batch is being posted: nothing is added to it
	stuck   time.Time        // when Look first found the batch full; zero where it did not
	end     session.Position // behind the last line of the batch
	notes   notes
}

// ReadError is the error of a pass that could not read the session file.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ReadError) Unwrap() error { return e.Err }

// Posted returns how many of the file's lines are on the thread, those before From included. It may be called at any
// time.
func (m *Mirror) Posted() int64 { return m.posted.Load() }

// Seen returns how many of the file's lines were read for Tally, those before the run included. It may be called at any
// time.
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

// Look passes the lines up to the end of the file to Tally, and posts none. It never waits for the network. While posts
// are acknowledged it may stop where the batch is full, and Tally gets the rest with the next batch. last reports that
// the file's writer is gone: Look reads to the end then, a line without a newline included. An error is a *ReadError.
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

// Close closes the files and Run's watch. (The kernel takes some 15 ms to end a watch: call Close after what somebody
// waits for.)
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

// Run makes a pass whenever the file may have changed, until ctx is done, and then returns nil. It logs a failed pass
// and repeats it after a wait.
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
		if err.Error() != failed { // the same error is logged once
			m.Log.Warn("post session lines; retrying", "error", err)
			failed = err.Error()
		}
		pause.For(ctx, wait/2+rand.N(wait/2))
		wait = min(2*wait, mostWait)
	}
	return nil
}

// wait returns when the file may have changed.
func (m *Mirror) wait(ctx context.Context) {
	m.mu.Lock()
	path := m.Path
	m.mu.Unlock()
	if path == "" {
		pause.For(ctx, findEvery)
		return
	}
	if m.watch == nil {
		m.watch = session.NewWatch(path)
	}
	m.watch.Wait(ctx, poll)
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

// load prepares the next batch, and reports whether there is one. Tally gets the batch's lines before they are posted,
// also from a scout: the file may change right afterwards.
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
	if err != nil { // the lines before the error are posted; then fill returns it again
		m.Log.Debug("read session", "error", err)
	}
	for more := m.scout != nil && !m.scout.behind; more; {
		if more, err = m.lookAhead(last); err != nil {
			m.Log.Debug("read session ahead", "error", err)
		}
	}
	if !m.posting {
		m.posting, m.pending = true, m.batch
	}
	return true, nil
}

// shipped records that the batch is on the thread, and returns the position behind it.
func (m *Mirror) shipped() session.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.posted.Add(int64(len(m.batch)))
	clear(m.batch) // frees the payloads
	m.batch, m.size, m.posting, m.refused = m.batch[:0], 0, false, nil
	m.stuck = time.Time{}
	m.note(m.reader)
	return m.end
}
