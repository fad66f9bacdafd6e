package runfolder

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/format"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

// Fact is one line of facts.jsonl.
type Fact struct {
	At    time.Time     `json:"at"`    // for people
	Clock time.Duration `json:"clock"` // time since boot, with suspended time: for durations
	Fact  string        `json:"fact"`  // one of the Fact constants

	PID      int               `json:"pid,omitempty"`      // spawned
	Ticks    uint64            `json:"ticks,omitempty"`    // spawned: start of the process
	OOMKills *int64            `json:"oomKills,omitempty"` // spawned: the cgroup's counter
	Signal   string            `json:"signal,omitempty"`   // signalled
	Lost     time.Duration     `json:"lost,omitempty"`     // paused: how long
	Action   outcome.Action    `json:"deed,omitempty"`     // action; the name in older folders is kept
	Why      string            `json:"why,omitempty"`      // action, not_started
	Status   int               `json:"status,omitempty"`   // not_started: the runner's exit status
	Exit     *outcome.Exit     `json:"exit,omitempty"`     // exited
	Session  *harness.Session  `json:"session,omitempty"`  // located
	Verdict  *outcome.Verdict  `json:"verdict,omitempty"`  // decided
	End      *session.Position `json:"end,omitempty"`      // decided: the end of this run's lines
}

// The facts of a run, in their usual order.
const (
	FactOpened     = "opened"      // the thread has the run's first entries
	FactTurnedAway = "turned_away" // the thread's server refused the run
	FactNotStarted = "not_started" // the agent could not be started
	FactSpawned    = "spawned"     // the process that becomes the agent exists; the agent begins after this
	FactLocated    = "located"     // a session file that the agent made, or moved, was found
	FactPaused     = "paused"      // the worker was paused, alone or with its box
	FactAction     = "did"         // the runner decided to end the agent
	FactSignalled  = "signalled"   // the runner sent the agent a signal
	FactClosed     = "closed"      // the input of a live run's agent has ended
	FactExited     = "exited"      // the agent has ended
	FactDecided    = "decided"     // verdict and terminal.json are final
	FactDelivered  = "delivered"   // the thread has the terminal
	FactTaken      = "taken"       // another runner has the run, and posts its end
)

// Record is run.json: the run's configuration, and what is decided before the agent starts.
type Record struct {
	Format    int              `json:"format,omitempty"` // of the whole folder; Encode sets it
	Thread    string           `json:"thread"`
	Run       string           `json:"run"`
	Harness   string           `json:"harness"`
	Cwd       string           `json:"cwd"`
	Session   string           `json:"session"`           // path of the session file; "": the agent has not made it yet
	Bytes     *paths           `json:"bytes,omitempty"`   // Cwd and Session if they are not UTF-8
	SessionID string           `json:"sessionId"`         // "": not known yet
	Named     bool             `json:"named,omitempty"`   // the session file was named on the command line
	From      session.Position `json:"from"`              // of this run's first line
	Posted    session.Position `json:"posted"`            // the thread had the lines before it when the run began
	Resume    string           `json:"resume"`            // one of the Resume constants
	PID       int              `json:"pid"`               // of the keeper, else of the worker
	Live      bool             `json:"live,omitempty"`    // the run takes chats while it lasts
	Instance  string           `json:"instance"`          // value of harness.MarkVar in the run's processes
	Boot      string           `json:"boot"`              // boot id, for which Clock and PID are valid
	Clock     time.Duration    `json:"clock"`             // when the run began
	Started   time.Time        `json:"started"`           // the same, for people
	Opening   json.RawMessage  `json:"opening,omitempty"` // the run's first entries, as they are posted
	// Subagents are the files of the session's subagents when the run began, and their sizes.
	Subagents map[string]int64 `json:"subagents,omitempty"`
}

// paths are paths as bytes.
type paths struct {
	Cwd     []byte `json:"cwd"`
	Session []byte `json:"session"`
}

// folderFormat is the number of the format in which this program writes a run's folder.
const folderFormat = 1

// Encode returns the content of run.json.
func (rec Record) Encode() ([]byte, error) {
	rec.Format = folderFormat
	if !utf8.ValidString(rec.Cwd) || !utf8.ValidString(rec.Session) {
		rec.Bytes = &paths{[]byte(rec.Cwd), []byte(rec.Session)}
	}
	b, err := json.MarshalIndent(rec, "", "  ")
	return append(b, '\n'), err
}

// Progress is the state of a run according to its facts.
type Progress struct {
	Opened     bool
	TurnedAway bool
	NotStarted *Fact
	Spawned    *Fact
	Sessions   []harness.Session // those that were located, in order; one that was moved once
	Paused     time.Duration     // since the agent was spawned
	Action     *Fact
	Closed     bool
	Exit       *outcome.Exit
	Decided    *Fact
	Delivered  bool
	Taken      bool
	last       time.Time
}

// Replay returns the state after the facts.
func Replay(facts []Fact) (p Progress) {
	for _, f := range facts {
		p.last = f.At
		switch f.Fact {
		case FactOpened:
			p.Opened, p.TurnedAway = true, false
		case FactTurnedAway:
			p.TurnedAway = true
		case FactNotStarted:
			p.NotStarted = &f
		case FactSpawned:
			// A process before this one did not become the agent.
			p.Spawned, p.Exit, p.Paused, p.Closed = &f, nil, 0, false
		case FactLocated:
			if f.Session == nil {
				break
			}
			if n := len(p.Sessions); n > 0 && p.Sessions[n-1].ID == f.Session.ID {
				p.Sessions = p.Sessions[:n-1]
			}
			p.Sessions = append(p.Sessions, *f.Session)
		case FactPaused:
			p.Paused += f.Lost
		case FactAction:
			if p.Action == nil { // the first one counts
				p.Action = &f
			}
		case FactClosed:
			p.Closed = true
		case FactExited:
			p.Exit = f.Exit
		case FactDecided:
			p.Decided = &f
		case FactDelivered:
			p.Delivered = true
		case FactTaken:
			p.Taken = true
		}
	}
	return p
}

// Clock is the time since boot, with suspended time. It does not jump when the wall clock is set.
func Clock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // every Linux has this clock
	}
	return time.Duration(ts.Nano())
}

// BootID is the id of this boot of the machine; "" if it can't be read.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// ReadFacts reads a run's facts. It skips torn lines, which a crash of the machine or a full disk leaves.
func ReadFacts(folder string) ([]Fact, error) {
	f, err := os.Open(filepath.Join(folder, factsFile))
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

// ReadRecord reads run.json; fs.ErrNotExist if there is none.
func ReadRecord(folder string) (Record, error) {
	b, err := os.ReadFile(filepath.Join(folder, recordFile))
	if err != nil {
		return Record{}, err
	}
	return parseRecord(b)
}

// parseRecord returns format.ErrLater for a folder that a later program has written: its record may have another form.
func parseRecord(b []byte) (rec Record, err error) {
	var mark struct {
		Format int `json:"format"`
	}
	if json.Unmarshal(b, &mark) == nil {
		if err := format.Check("it", mark.Format, folderFormat); err != nil {
			return rec, err
		}
	}
	if err := json.Unmarshal(b, &rec); err != nil {
		return rec, fmt.Errorf("run.json: %w", err)
	}
	if rec.Bytes != nil {
		rec.Cwd, rec.Session, rec.Bytes = string(rec.Bytes.Cwd), string(rec.Bytes.Session), nil
	}
	return rec, nil
}

// Stop is the signal that ends the run's agent in order.
func (rec Record) Stop(spec harness.Spec) syscall.Signal {
	if rec.Live && spec.Live != nil {
		return spec.Live.Stop
	}
	return spec.Stop
}

// AgentLives reports whether the spawned agent still runs.
func (rec Record) AgentLives(p Progress) bool {
	if p.Spawned == nil || p.Exit != nil || rec.Boot != BootID() {
		return false
	}
	st, err := procfs.Read(p.Spawned.PID)
	return err == nil && st.Started == p.Spawned.Ticks && st.Alive()
}
