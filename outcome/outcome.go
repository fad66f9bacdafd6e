// Package outcome decides what a run came to.
//
// Decide is a pure function of two facts, what the agent's session says of the run's last turn and how the agent's process ended, and of
// what the runner itself did to the agent. It never guesses in the agent's favour: a run is completed only where the session has a success
// on record. The package reads no file, no clock and no log, and imports the standard library only.
package outcome

import (
	"encoding/json"
	"strings"
)

// Outcome is the one word that a run came to.
type Outcome string

// The four outcomes.
const (
	Completed Outcome = "completed"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
	Orphaned  Outcome = "orphaned" // nobody can say: no output at all, or the end was not seen
)

// The classes of a failure.
const (
	ClassProvider      = "provider_error"       // the model's provider said no, or the connection to it broke
	ClassUnreachable   = "provider_unreachable" // the provider could not be reached for too long
	ClassExit          = "pi_exit"              // the agent's process ended on its own with a failure, or with 0 in mid-turn
	ClassKilled        = "killed"               // somebody killed the process
	ClassOOM           = "oom"                  // the kernel killed it for memory, proven by the cgroup's counters
	ClassTimeout       = "timeout"              // the runaway guard ended it
	ClassStalled       = "stalled"              // it did nothing for too long
	ClassDiskFull      = "disk_full"
	ClassSpawn         = "spawn"          // it could not be started
	ClassLaunch        = "launch"         // the box or the runner could not be started
	ClassUnknownFormat = "unknown_format" // its session is in a shape that we don't understand
	ClassUnknown       = "unknown"
)

// The reasons of an orphaned run that the runner itself can give.
const (
	ReasonNoOutput   = "no_output"   // the agent ended with 0 and had not said a word
	ReasonRunnerLost = "runner_lost" // how the agent ended was not seen, and the session does not say
)

// The stop reasons of a turn, in pi's words for every harness.
const (
	StopNone    = "none" // the run's last turn has none on record
	StopStop    = "stop"
	StopLength  = "length"
	StopToolUse = "toolUse"
	StopError   = "error"
	StopAborted = "aborted"
)

// State is what the session says of this run's last turn.
type State int

// The states of a turn.
const (
	None       State = iota // no assistant output in this run
	Unfinished              // some output, and then no end: a tool call without an answer, an answer not begun
	Ended                   // ended well
	Errored                 // a failure on record
	Aborted                 // an interruption on record
)

// Turn is what the session (and the agent's stdout) says of this run's last turn. The zero value is a session without lines.
type Turn struct {
	Lines      int // lines of this run, the file's header not counted
	Understood int // those of them that the dialect knows
	State      State
	StopReason string // one of the Stop constants; "" is StopNone
	Class      string // the class of an Errored turn, where finer than provider_error
	Message    string // what the agent said of its failure
	Provider   string
	Model      string
}

// Action is what the runner itself did to end the agent, written down when it did it.
type Action string

// The actions of a runner.
const (
	ActionNone        Action = ""
	ActionCancel      Action = "cancelled"            // it was told to stop
	ActionTimeout     Action = "timeout"              // the runaway guard fired
	ActionStall       Action = "stalled"              // the stall limit was reached
	ActionUnreachable Action = "provider_unreachable" // the provider was out of reach for too long
	ActionLinger      Action = "lingered"             // the agent had ended well on record and would not go
	ActionNotStarted  Action = "spawn"                // the agent's binary could not be started
)

// Facts is all that a verdict rests on.
type Facts struct {
	Turn   Turn
	Exit   Exit
	Action Action
	Why    string // why the runner did it, for people: "SIGTERM", "no such file"
	Stderr string // the agent's last words on stderr, for people; the verdict does not hang on them

	OOM      bool // the cgroup's counter says that the kernel killed for memory while the agent ran
	DiskFull bool // there was no room on the agent's disk when it ended, or it said so
}

// Verdict is what a run came to. Empty texts are null in its JSON.
type Verdict struct {
	Outcome    Outcome
	StopReason string // one of the Stop constants, never ""
	ErrorClass string // one of the Class constants for a failed run, else ""
	Reason     string // which rule decided, one token; for an orphaned run one of the Reason constants
	Message    string // one sentence for people
	Provider   string
	Model      string
	Exit       Exit
}

// Decide returns the verdict on a run. It is total: every Facts has one. The rules stand in the order in which they are tried.
func Decide(f Facts) Verdict {
	t := f.Turn
	v := Verdict{StopReason: t.StopReason, Provider: t.Provider, Model: t.Model, Exit: f.Exit}
	if v.StopReason == "" {
		v.StopReason = StopNone
	}
	is := func(o Outcome, class, reason, message string) Verdict {
		v.Outcome, v.ErrorClass, v.Reason, v.Message = o, class, reason, message
		return v
	}
	gone := "the agent ended with " + f.Exit.String()
	crashed := because(gone, lastLine(f.Stderr))

	// A turn that ended well outranks what the runner did: the work is done and on record. A process that then ends of itself,
	// because it was asked to, or because we would not wait any longer, takes nothing away from it.
	// pi ends with 1 when a reply was cut at the output limit (1.5.2), and such a turn counts as ended.
	quiet := !f.Exit.Known || f.Exit.clean() || f.Exit.asked() || f.Action == ActionLinger
	if v.StopReason == StopLength && f.Exit == ExitCode(1) {
		quiet = true
	}
	unknown := t.Lines > 0 && t.Understood == 0
	if t.State == Ended && quiet && !unknown {
		return is(Completed, "", "ended_well", "")
	}

	switch f.Action {
	case ActionCancel:
		return is(Cancelled, "", "cancelled", because("the run was cancelled", f.Why))
	case ActionTimeout:
		return is(Failed, ClassTimeout, "timeout", because("the runaway guard ended the agent", f.Why))
	case ActionStall:
		return is(Failed, ClassStalled, "stalled", because("the agent did nothing for too long", f.Why))
	case ActionUnreachable:
		return is(Failed, ClassUnreachable, "provider_unreachable", because("the model's provider was out of reach", f.Why))
	case ActionNotStarted:
		class := ClassSpawn
		if f.DiskFull {
			class = ClassDiskFull
		}
		return is(Failed, class, "spawn", because("the agent could not be started", f.Why))
	case ActionNone, ActionLinger:
	}

	if unknown {
		return is(Failed, ClassUnknownFormat, "unknown_format", "none of the session's lines is in a shape that this runner understands")
	}
	switch t.State {
	case Errored:
		class := t.Class
		if class == "" {
			class = ClassProvider
		}
		msg := t.Message
		if msg == "" {
			msg = "the session records a failure without a message; " + gone
		}
		return is(Failed, class, "error_on_record", msg)
	case Aborted:
		return is(Cancelled, "", "aborted_on_record", because("the turn was interrupted", t.Message))
	case Ended:
		return is(Failed, crashClass(f), "bad_exit", "the turn ended well, but "+crashed)
	case None, Unfinished:
	}

	switch {
	case !f.Exit.Known:
		return is(Orphaned, "", ReasonRunnerLost, "how the agent ended was not seen, and its session does not say")
	case f.Exit.asked():
		return is(Cancelled, "", "signalled", gone)
	case !f.Exit.clean():
		return is(Failed, crashClass(f), "bad_exit", crashed)
	case t.State == Unfinished:
		return is(Failed, crashClass(f), "unfinished", gone+" in the middle of a turn")
	default:
		return is(Orphaned, "", ReasonNoOutput, gone+" without any output")
	}
}

// crashClass is the class of an end that nobody asked for.
func crashClass(f Facts) string {
	switch {
	case f.Exit.killed() && f.OOM:
		return ClassOOM
	case f.Exit.killed():
		return ClassKilled
	case f.DiskFull:
		return ClassDiskFull
	}
	return ClassExit
}

// lastLine is the last line of a text that is not blank.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// ExitStatus is the status with which the runner ends after this verdict: 0 exactly when it is completed, else the agent's own
// (128+n for signal n), 1 where the agent said 0 or nothing.
func (v Verdict) ExitStatus() int {
	if v.Outcome == Completed {
		return 0
	}
	if s := v.Exit.Status(); s != 0 {
		return s
	}
	return 1
}

// wire is a Verdict as JSON has it.
type wire struct {
	Outcome    Outcome `json:"outcome"`
	StopReason string  `json:"stopReason"`
	ErrorClass *string `json:"errorClass"`
	Reason     *string `json:"reason"`
	Message    *string `json:"message"`
	ExitCode   *int    `json:"exitCode"`
	Signal     *string `json:"signal"`
	Provider   *string `json:"provider"`
	Model      *string `json:"model"`
}

// MarshalJSON writes all fields, null where there is nothing to say.
func (v Verdict) MarshalJSON() ([]byte, error) {
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	code, signal := v.Exit.Parts()
	return json.Marshal(wire{
		v.Outcome, v.StopReason, text(v.ErrorClass), text(v.Reason), text(v.Message), code, signal, text(v.Provider), text(v.Model),
	})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (v *Verdict) UnmarshalJSON(b []byte) error {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	*v = Verdict{
		Outcome: w.Outcome, StopReason: w.StopReason, ErrorClass: text(w.ErrorClass), Reason: text(w.Reason), Message: text(w.Message),
		Provider: text(w.Provider), Model: text(w.Model),
	}
	if w.Signal != nil {
		sig, err := ParseSignal(*w.Signal)
		v.Exit = Signalled(sig)
		return err
	}
	if w.ExitCode != nil {
		v.Exit = ExitCode(*w.ExitCode)
	}
	return nil
}
