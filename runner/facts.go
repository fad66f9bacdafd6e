package runner

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

// Fact is one line of facts.jsonl.
type Fact struct {
	At    time.Time     `json:"at"`    // for people
	Clock time.Duration `json:"clock"` // since the machine's start, suspended time included: what durations are measured by
	Fact  string        `json:"fact"`  // one of the Fact constants

	PID      int               `json:"pid,omitempty"`      // spawned
	Ticks    uint64            `json:"ticks,omitempty"`    // spawned: the process's start, so that its pid can't be mistaken
	OOMKills *int64            `json:"oomKills,omitempty"` // spawned: the cgroup's counter
	Signal   string            `json:"signal,omitempty"`   // signalled
	Lost     time.Duration     `json:"lost,omitempty"`     // paused: how long
	Action   outcome.Action    `json:"deed,omitempty"`     // did
	Why      string            `json:"why,omitempty"`      // did, not_started
	Status   int               `json:"status,omitempty"`   // not_started: what the runner exits with
	Exit     *outcome.Exit     `json:"exit,omitempty"`     // exited
	Session  *harness.Session  `json:"session,omitempty"`  // located
	Verdict  *outcome.Verdict  `json:"verdict,omitempty"`  // decided
	End      *session.Position `json:"end,omitempty"`      // decided: where this run's lines end
}

// The facts of a run, in the order in which they mostly happen.
const (
	FactOpened     = "opened"      // the thread has the run's first entries
	FactTurnedAway = "turned_away" // the thread's server refused the run
	FactNotStarted = "not_started" // the agent could not be started
	FactSpawned    = "spawned"     // the agent's process is there; the agent itself begins only then
	FactLocated    = "located"     // the session of an agent that makes it by itself was found
	FactPaused     = "paused"      // the worker stood still, with the box or alone
	FactAction     = "did"         // the runner decided to end it
	FactSignalled  = "signalled"   // and sent a signal
	FactExited     = "exited"      // the agent is gone
	FactDecided    = "decided"     // the verdict stands, and terminal.json with it
	FactDelivered  = "delivered"   // the thread has the terminal
	FactTaken      = "taken"       // it turned out to be another runner's run, whose end is not ours to tell
)

// Record is run.json: what was asked for, and what is decided before anything happens.
type Record struct {
	Thread    string           `json:"thread"`
	Run       string           `json:"run"`
	Harness   string           `json:"harness"`
	Cwd       string           `json:"cwd"`
	Session   string           `json:"session"`           // the session file's path; "" as long as the agent has not made it
	Bytes     *paths           `json:"bytes,omitempty"`   // Cwd and Session where they are no UTF-8
	SessionID string           `json:"sessionId"`         // the session's own name; "" as long as the agent has not said it
	Named     bool             `json:"named,omitempty"`   // a person named the session file
	From      session.Position `json:"from"`              // where this run's lines begin in it
	Posted    session.Position `json:"posted"`            // the lines before it were on the thread when the run began
	Resume    string           `json:"resume"`            // how it came by its session: one of the Resume constants
	PID       int              `json:"pid"`               // of the runner that the user started: the keeper, where there is one
	Instance  string           `json:"instance"`          // marks the run's processes
	Boot      string           `json:"boot"`              // the machine's start that Clock and pids belong to
	Clock     time.Duration    `json:"clock"`             // when the run began
	Started   time.Time        `json:"started"`           // the same, for people
	Opening   json.RawMessage  `json:"opening,omitempty"` // the run's first entries, as they are posted
}

// paths are paths as the bytes that they are.
type paths struct {
	Cwd     []byte `json:"cwd"`
	Session []byte `json:"session"`
}

// encode is the record as run.json holds it.
func (rec Record) encode() ([]byte, error) {
	if !utf8.ValidString(rec.Cwd) || !utf8.ValidString(rec.Session) {
		rec.Bytes = &paths{[]byte(rec.Cwd), []byte(rec.Session)}
	}
	b, err := json.MarshalIndent(rec, "", "  ")
	return append(b, '\n'), err
}

// progress is how far a run has come, as its facts tell.
type progress struct {
	opened     bool
	turnedAway bool
	notStarted *Fact
	spawned    *Fact
	located    *harness.Session
	paused     time.Duration // since the agent was spawned
	action     *Fact
	exit       *outcome.Exit
	decided    *Fact
	delivered  bool
	taken      bool
	last       time.Time
}

func replay(facts []Fact) (p progress) {
	for _, f := range facts {
		p.last = f.At
		switch f.Fact {
		case FactOpened:
			p.opened, p.turnedAway = true, false
		case FactTurnedAway:
			p.turnedAway = true
		case FactNotStarted:
			p.notStarted = &f
		case FactSpawned:
			p.spawned, p.exit, p.paused = &f, nil, 0 // after one that has not begun
		case FactLocated:
			p.located = f.Session
		case FactPaused:
			p.paused += f.Lost
		case FactAction:
			if p.action == nil { // the first reason is the reason
				p.action = &f
			}
		case FactExited:
			p.exit = f.Exit
		case FactDecided:
			p.decided = &f
		case FactDelivered:
			p.delivered = true
		case FactTaken:
			p.taken = true
		}
	}
	return p
}

// clock is the time since the machine's start, suspended time included. It never jumps, whatever is done to the wall clock.
func clock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // no Linux without it
	}
	return time.Duration(ts.Nano())
}

// bootID names this start of the machine.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// readFacts reads a run's facts. A line that is only a part is one that the machine's death cut off.
func readFacts(folder string) ([]Fact, error) {
	f, err := os.Open(filepath.Join(folder, "facts.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing to lose
	var facts []Fact
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var fact Fact
		if json.Unmarshal(lines.Bytes(), &fact) != nil {
			continue
		}
		facts = append(facts, fact)
	}
	return facts, lines.Err()
}

// readRecord reads run.json; fs.ErrNotExist where the run has none.
func readRecord(folder string) (Record, error) {
	var rec Record
	b, err := os.ReadFile(filepath.Join(folder, "run.json"))
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(b, &rec); err != nil {
		return rec, fmt.Errorf("run.json: %w", err)
	}
	if rec.Bytes != nil {
		rec.Cwd, rec.Session, rec.Bytes = string(rec.Bytes.Cwd), string(rec.Bytes.Session), nil
	}
	return rec, nil
}

// agentLives reports whether the agent that was spawned is still there.
func (rec Record) agentLives(p progress) bool {
	if p.spawned == nil || p.exit != nil || rec.Boot != bootID() {
		return false
	}
	st, err := procfs.Read(p.spawned.PID)
	return err == nil && st.Started == p.spawned.Ticks && st.Alive()
}
