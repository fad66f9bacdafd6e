package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/runner/stdio"
	"arbe.0sk.ar/runner/session"
)

// follower counts what decides the verdict: the run's lines, which the mirror passes to it as it reads them, and the
// agent's stdout, which it reads itself. It waits for no network. It is safe for concurrent use.
type follower struct {
	report func(line []byte) harness.Report
	live   *harness.Live // of a live run, in place of report; else nil

	mu      sync.Mutex
	stdout  *stdio.Lines // nil: it does not count
	talk    talkState    // after the lines of stdout so far; of a print run the Sessions alone
	tally   harness.Tally
	offline time.Duration // since when the agent waits for its provider: clock; 0: it does not
	digest  hash.Hash     // over the ids of this run's lines
	lines   int64         // of this run
	usage   any
	moved   time.Duration // when the last line came: clock

	events []harness.Event // of a live run: what the live loop has not taken yet
}

func (r *run) newFollower() *follower {
	f := &follower{digest: sha256.New(), moved: runfolder.Clock()}
	if r.Spec.Report != nil && r.TTY == nil {
		f.report, f.stdout = r.Spec.Report, &stdio.Lines{Path: filepath.Join(r.Folder.Path, "stdout")}
		f.tally.OnStdout = r.Spec.EndsOnStdout
	}
	if r.Live {
		f.stdout = &stdio.Lines{Path: filepath.Join(r.Folder.Path, "stdout"), Whole: true}
		f.live, f.tally.OnStdout = r.Spec.Live, r.Spec.EndsOnStdout
		err := readJSON(filepath.Join(r.Folder.Path, talkFile), &f.talk)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.Log.Warn("read the conversation so far; reading all that the agent's stdout still has", "error", err)
		}
		if f.stdout.At = f.talk.At; f.talk.Printed {
			f.tally.AddReport(f.talk.Report)
		}
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
	return f.stdout.Read(last, func(line []byte) {
		report := f.parse(line)
		f.tally.AddReport(report)
		f.print(report.SessionID)
		switch {
		case !report.Offline:
			f.offline = 0
		case f.offline == 0:
			f.offline = runfolder.Clock()
		}
	})
}

// parse returns the report in a line of stdout.
func (f *follower) parse(line []byte) harness.Report {
	if f.live == nil {
		return f.report(line)
	}
	ev := f.live.Read(&f.talk.Talk, line)
	if ev.Idle {
		f.talk.Idles++
	}
	if f.talk.Printed = true; ev.Mark != session.NoMark {
		f.talk.Report = ev.Report
	}
	if ev.Idle || ev.Accepted != "" || ev.Refused != "" || ev.Answered != "" || len(ev.Dropped) > 0 ||
		ev.Request != nil || ev.OpenError != "" {
		f.events = append(f.events, ev)
	}
	return ev.Report
}

// conversation returns the state of the conversation with a live run's agent, what has happened since the last call,
// and how often the agent has become idle in all.
func (f *follower) conversation() (talk harness.Talk, events []harness.Event, idles int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events, f.events = f.events, nil
	return f.talk.Talk, events, f.talk.Idles
}

// talkState returns the content of talkFile; false while there are events that nobody has taken.
func (f *follower) talkState() (talkState, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.talk.At = f.stdout.Taken()
	return f.talk, len(f.events) == 0
}

// over reports whether the session has the end of the turn on record.
func (f *follower) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tally.Over()
}

// turn returns the run's last turn so far.
func (f *follower) turn() outcome.Turn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tally.Turn()
}

// print notes a session that the agent has printed; "" for none.
func (f *follower) print(id string) {
	if id == "" || slices.ContainsFunc(f.talk.Sessions, func(s harness.Session) bool { return s.ID == id }) {
		return
	}
	s := harness.Session{ID: id}
	if printed := f.talk.Talk.Session; printed.ID == id {
		s.Path = printed.Path
	}
	f.talk.Sessions = append(f.talk.Sessions, s)
}

// sessions returns the agent's sessions that it has printed so far, in order.
func (f *follower) sessions() []harness.Session {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.readStdout(false) // the next call retries
	return slices.Clip(f.talk.Sessions)
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
	return f.stdout.Close()
}
