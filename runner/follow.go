package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

// follower reads the session and the agent's stdout beside the mirror, for what the run came to: it must get to the end of the file also when the thread can't be reached
// and the mirror stands still. It is safe for concurrent use.
type follower struct {
	dialect session.Dialect
	from    session.Position // where this run's lines begin
	until   int              // the index of the next run's first line; 0 where there is none
	named   bool             // a person named the file: it may be no session

	known *mirror.Known
	find  func() (path, id string) // where the session is, once it is known
	said  func(line []byte) harness.Said

	behind atomic.Bool // it has not yet read what came under an earlier worker

	mu      sync.Mutex
	reader  *session.Reader // nil as long as there is none
	stdout  *outputLines    // nil where it doesn't count
	decoder session.Decoder
	namer   mirror.Namer
	tally   harness.Tally
	told    string        // the session's id, as the agent tells it
	offline time.Duration // since when the agent waits for its provider: clock; 0 where it doesn't
	digest  hash.Hash     // over the ids of this run's lines
	total   int64         // lines of the file, earlier runs' included
	lines   int64         // of this run
	usage   any
	moved   time.Duration // when the last line came: clock
}

func (r *run) newFollower() *follower {
	f := &follower{
		dialect: r.Spec.Dialect, from: r.record.From, until: r.until, named: r.record.Named, known: r.known,
		find: r.session, decoder: session.Decoder{Dialect: r.Spec.Dialect}, digest: sha256.New(), moved: clock(),
	}
	f.behind.Store(r.progress.spawned != nil)
	if r.Spec.Said != nil && r.TTY == nil {
		f.said, f.stdout = r.Spec.Said, &outputLines{path: filepath.Join(r.folder.Path, "stdout")}
		f.tally.OnStdout = r.Spec.EndsOnStdout
	}
	return f
}

// atOnce is how many lines are read without a pause for those who ask the follower something.
const atOnce = 1000

// read takes the lines that have come. last reports that the agent is gone, so that a line without a newline is one, too.
func (f *follower) read(last bool) error {
	f.mu.Lock()
	err := f.hear(last)
	f.mu.Unlock()
	for more := true; more; {
		var failed error
		f.mu.Lock()
		more, failed = f.follow(last)
		f.mu.Unlock()
		err = errors.Join(err, failed)
	}
	return err
}

// readLines takes the lines of the session that have come. What the agent prints meanwhile can wait; and so can a
// line for a follower that still reads what came under an earlier worker.
func (f *follower) readLines() error {
	for more := !f.behind.Load(); more; {
		var err error
		f.mu.Lock()
		more, err = f.follow(false)
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// follow takes some of the session's lines, and reports whether there are more.
func (f *follower) follow(last bool) (more bool, err error) {
	if f.reader == nil {
		path, id := f.find()
		if path == "" {
			return false, nil
		}
		f.reader = session.NewReader(path, session.Position{})
		f.namer = mirror.Namer{Dialect: f.dialect, Session: id, Known: f.known}
		if f.named {
			f.reader = session.NewSessionReader(path, f.dialect)
		}
		f.reader.Until(f.until)
	}
	next := f.reader.Next
	if last {
		next = f.reader.Rest
	}
	for range atOnce {
		line, err := next()
		var changed *session.ChangedError
		switch {
		case errors.Is(err, io.EOF):
			f.behind.Store(false)
			return false, nil
		case errors.As(err, &changed): // it is read again from its start
			if err := f.reader.Reset(); err != nil {
				return false, err
			}
			f.namer.Restart()
			continue
		case err != nil:
			return false, err
		}
		f.take(line)
	}
	return true, nil
}

// hear takes what has come on stdout, or the end of it where that is more than is kept.
func (f *follower) hear(last bool) error {
	if f.stdout == nil {
		return nil
	}
	return f.stdout.read(last, func(line []byte) {
		said := f.said(line)
		f.tally.Hear(said)
		if said.SessionID != "" {
			f.told = said.SessionID
		}
		switch {
		case !said.Offline:
			f.offline = 0
		case f.offline == 0:
			f.offline = clock()
		}
	})
}

// tells is the session's id, as the agent has told it on stdout so far; "" where it has not.
func (f *follower) tells() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.hear(false) // what can't be read now is read the next time
	return f.told
}

// offlineSince is since when the agent has waited for its provider (clock); 0 where it does not.
func (f *follower) offlineSince() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.offline
}

func (f *follower) take(line session.Line) {
	e := f.decoder.Next(line.Data)
	if !line.Held() {
		e = session.Entry{Kind: session.Text, Type: "long"}
	}
	name := f.namer.Name(line, e)
	if name.Again || name.Was != "" {
		return
	}
	f.total++
	if line.Start.Index < f.from.Index && !f.namer.Restarted() {
		return
	}
	f.moved, f.offline = clock(), 0
	f.lines++
	_, _ = io.WriteString(f.digest, name.ID+"\n") // a hash takes everything
	f.tally.Add(e)
	if len(e.Usage) > 0 {
		var u any
		if json.Unmarshal(e.Usage, &u) == nil {
			f.usage = sum(f.usage, u)
		}
	}
}

// sum adds the numbers of two JSON values, member by member. What is no number is left out.
func sum(a, b any) any {
	switch b := b.(type) {
	case float64:
		x, _ := a.(float64)
		return x + b
	case map[string]any:
		x, ok := a.(map[string]any)
		if !ok {
			x = map[string]any{}
		}
		for k, v := range b {
			if s := sum(x[k], v); s != nil {
				x[k] = s
			}
		}
		return x
	}
	return a
}

// seen is how many lines there were, this run's and earlier ones.
func (f *follower) seen() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total
}

// resting reports that the turn has ended well and no tool is at work.
func (f *follower) resting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tally.Resting()
}

// lastLine is when the last line of this run came: clock.
func (f *follower) lastLine() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moved
}

// summary is what the run's lines came to.
type summary struct {
	turn   outcome.Turn
	lines  int64
	digest string
	usage  json.RawMessage
	end    session.Position
}

func (f *follower) summary() summary {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := summary{turn: f.tally.Turn(), lines: f.lines, digest: hex.EncodeToString(f.digest.Sum(nil))}
	if f.reader != nil {
		s.end = f.reader.Position()
	}
	if f.usage != nil {
		s.usage, _ = json.Marshal(f.usage) // it came from JSON
	}
	return s
}

func (f *follower) close() (err error) {
	if f.reader != nil {
		err = f.reader.Close()
	}
	if f.stdout != nil {
		err = errors.Join(err, f.stdout.close())
	}
	return err
}
