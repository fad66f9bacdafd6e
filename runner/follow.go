package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"sync"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

// follower reads the session beside the mirror, for what the run came to: it must get to the end of the file also when the thread can't be reached
// and the mirror stands still. It is safe for concurrent use.
type follower struct {
	dialect session.Dialect
	from    session.Position // where this run's lines begin

	mu     sync.Mutex
	reader *session.Reader
	namer  mirror.Namer
	tally  harness.Tally
	digest hash.Hash // over the ids of this run's lines
	total  int64     // lines of the file, earlier runs' included
	lines  int64     // of this run
	usage  any
	moved  time.Duration // when the last line came: clock
}

func newFollower(path string, d session.Dialect, sessionID string, from session.Position) *follower {
	return &follower{
		dialect: d, from: from, reader: session.NewReader(path, session.Position{}), namer: mirror.Namer{Dialect: d, Session: sessionID},
		digest: sha256.New(), moved: clock(),
	}
}

// read takes the lines that have come, last reports that the agent is gone, so that a line without a newline is one, too.
func (f *follower) read(last bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.reader.Next
	if last {
		next = f.reader.Rest
	}
	for {
		line, err := next()
		var changed *session.ChangedError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &changed):
			if err := f.reader.Reset(); err != nil {
				return err
			}
			f.namer.Restart()
			continue
		case err != nil:
			return err
		}
		f.take(line)
	}
}

func (f *follower) take(line session.Line) {
	e := f.dialect.Decode(line.Data)
	if line.Long > 0 {
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
	f.moved = clock()
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
	s := summary{turn: f.tally.Turn(), lines: f.lines, digest: hex.EncodeToString(f.digest.Sum(nil)), end: f.reader.Position()}
	if f.usage != nil {
		s.usage, _ = json.Marshal(f.usage) // it came from JSON
	}
	return s
}

func (f *follower) close() error { return f.reader.Close() }
