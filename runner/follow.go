package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"io"
	"path/filepath"
	"sync"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/session"
)

// follower counts what decides the verdict: the run's lines, which the mirror passes to it as it reads them, and the
// agent's stdout, which it reads itself. It waits for no network. It is safe for concurrent use.
type follower struct {
	report func(line []byte) harness.Report

	mu      sync.Mutex
	stdout  *outputLines // nil: it does not count
	tally   harness.Tally
	id      string        // the session's id, from stdout
	offline time.Duration // since when the agent waits for its provider: clock; 0: it does not
	digest  hash.Hash     // over the ids of this run's lines
	lines   int64         // of this run
	usage   any
	moved   time.Duration // when the last line came: clock
}

func (r *run) newFollower() *follower {
	f := &follower{digest: sha256.New(), moved: runfolder.Clock()}
	if r.Spec.Report != nil && r.TTY == nil {
		f.report, f.stdout = r.Spec.Report, &outputLines{path: filepath.Join(r.folder.Path, "stdout")}
		f.tally.OnStdout = r.Spec.EndsOnStdout
	}
	return f
}

// read reads the new lines on stdout. last: the agent has ended, so that a line without a newline counts, too.
func (f *follower) read(last bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readStdout(last)
}

// readStdout reads the new lines on stdout, or the last of them, if they are more than the file keeps.
func (f *follower) readStdout(last bool) error {
	if f.stdout == nil {
		return nil
	}
	return f.stdout.read(last, func(line []byte) {
		report := f.report(line)
		f.tally.AddReport(report)
		if report.SessionID != "" {
			f.id = report.SessionID
		}
		switch {
		case !report.Offline:
			f.offline = 0
		case f.offline == 0:
			f.offline = runfolder.Clock()
		}
	})
}

// sessionID returns the session's id from stdout; "" until the agent has printed it.
func (f *follower) sessionID() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.readStdout(false) // the next call retries
	return f.id
}

// offlineSince returns since when the agent waits for its provider (clock); 0 if it does not.
func (f *follower) offlineSince() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.offline
}

// take counts the run's next line. It is the Tally of the run's Mirror.
func (f *follower) take(id string, e session.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moved, f.offline = runfolder.Clock(), 0
	f.lines++
	_, _ = io.WriteString(f.digest, id+"\n") // never fails
	f.tally.Add(e)
	if len(e.Usage) > 0 {
		var u any
		if json.Unmarshal(e.Usage, &u) == nil {
			f.usage = sum(f.usage, u)
		}
	}
}

// sum adds the numbers of two JSON values, member by member. It leaves out other values.
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

// resting reports whether the turn has ended well and no tool is at work.
func (f *follower) resting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tally.Resting()
}

// lastLine is when this run's last line was read: clock.
func (f *follower) lastLine() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moved
}

// summary is the result of the run's lines.
type summary struct {
	turn   outcome.Turn
	lines  int64
	digest string
	usage  json.RawMessage
}

func (f *follower) summary() summary {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := summary{turn: f.tally.Turn(), lines: f.lines, digest: hex.EncodeToString(f.digest.Sum(nil))}
	if f.usage != nil {
		s.usage, _ = json.Marshal(f.usage) // it came from JSON
	}
	return s
}

func (f *follower) close() error {
	if f.stdout == nil {
		return nil
	}
	return f.stdout.close()
}
