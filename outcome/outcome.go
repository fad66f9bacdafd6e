// Package outcome decides the verdict on a run.
//
// Decide is a pure function of three facts: the run's last turn as the agent's session records it, the exit of the
// agent's process, and what the runner did to the agent. It never guesses in the agent's favour: a run is completed
// only if the session records a success. The package reads no file and no clock, logs nothing, and imports the
// standard library only.
package outcome

import (
	"cmp"
	"encoding/json"
)

// Outcome is the one-word result of a run.
type Outcome string

// The four outcomes.
const (
	Completed Outcome = "completed"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
	Orphaned  Outcome = "orphaned" // no result is known: the agent printed nothing, or its exit is unknown
)

// The classes of a failure.
const (
	ClassProvider      = "provider_error"       // the model's provider refused, or the connection to it broke
	ClassUnreachable   = "provider_unreachable" // the provider was out of reach for too long
	ClassExit          = "pi_exit"              // the agent's process failed, or exited with 0 in the middle of a turn
	ClassKilled        = "killed"               // the process was killed
	ClassOOM           = "oom"                  // the kernel killed it for memory, proven by the cgroup's counters
	ClassTimeout       = "timeout"              // the runaway guard ended it
	ClassStalled       = "stalled"              // it did nothing for too long
	ClassDiskFull      = "disk_full"
	ClassSpawn         = "spawn"          // it could not be started
	ClassLaunch        = "launch"         // the box or the runner could not be started
	ClassUnknownFormat = "unknown_format" // the dialect understands none of its session's lines
	ClassUnknown       = "unknown"
)

// The reasons for which the runner calls a run orphaned.
const (
	ReasonNoOutput   = "no_output"   // the agent exited with 0 and without output
	ReasonRunnerLost = "runner_lost" // the agent's exit is unknown, and its session records no end
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

// State is the state of this run's last turn.
type State int

// The states of a turn.
const (
	None       State = iota // no assistant output in this run
	Unfinished              // some output and no end: a tool call without a result, or a prompt without an answer
	Ended                   // ended well
	Errored                 // a failure on record
	Aborted                 // an interruption on record
)

// Turn is this run's last turn, from the session and the agent's stdout. The zero value is a session without lines.
type Turn struct {
	Lines      int // lines of this run, the file's header not counted
	Understood int // those of them that the dialect understands
	State      State
	StopReason string // one of the Stop constants; "" is StopNone
	Class      string // the class of an Errored turn, where finer than provider_error
	Message    string // the agent's own message about its failure
	Provider   string
	Model      string
}

// Action is the runner's action to end the agent. The runner records it when it takes it.
type Action string

// The actions of a runner.
const (
	ActionNone        Action = ""
	ActionCancel      Action = "cancelled"            // a signal or a request on the thread
	ActionTimeout     Action = "timeout"              // the runaway guard fired
	ActionStall       Action = "stalled"              // the stall limit was reached
	ActionUnreachable Action = "provider_unreachable" // the provider was out of reach for too long
	ActionLinger      Action = "lingered"             // the agent's turn had ended well, and its process kept running
	ActionNotStarted  Action = "spawn"                // the agent's binary could not be started
	ActionEnd         Action = "ended"                // the agent of a live run waited, and was ended
	ActionInput       Action = "input"                // the input of a live run's agent could not be continued
)

// Facts are the input of Decide.
type Facts struct {
	Turn   Turn
	Exit   Exit
	Action Action
	Why    string // the reason for the action, for people: "SIGTERM", "no such file"
	Stderr string // the end of the agent's stderr: its Cause is quoted in the message of a crash
	Node   string // the least version of Node that the agent needs; "": it needs none

	Interrupted bool // the runner interrupted the last turn: what the agent makes of that is no failure
	Unasked     bool // a live run whose agent has taken in nothing

	// Refused is the reason for which the last chat of such a run can never arrive; "" if it had none.
	Refused string

	OOM      bool // the cgroup's counter of OOM kills grew while the agent ran
	DiskFull bool // the agent's disk was full when it ended
}

// Verdict is the result of a run. Empty strings are null in its JSON.
type Verdict struct {
	Outcome    Outcome
	StopReason string // one of the Stop constants, never ""
	ErrorClass string // one of the Class constants for a failed run, else ""
	Reason     string // the rule that decided, one token; for an orphaned run one of the Reason constants
	Message    string // one sentence for people
	Provider   string
	Model      string
	Exit       Exit
}

// Decide returns the verdict on a run. Every Facts has one. The first rule that matches wins.
func Decide(f Facts) Verdict {
	t := f.Turn
	if f.Interrupted && t.State != Ended {
		t.State, t.StopReason, t.Message = Aborted, StopAborted, ""
	}
	v := Verdict{StopReason: cmp.Or(t.StopReason, StopNone), Provider: t.Provider, Model: t.Model, Exit: f.Exit}
	is := func(o Outcome, class, reason, message string) Verdict {
		v.Outcome, v.ErrorClass, v.Reason, v.Message = o, class, reason, message
		return v
	}
	gone := "the agent ended with " + f.Exit.String()
	crashed := because(gone, Cause(f.Stderr))
	switch old := oldNode(f.Stderr, f.Node); {
	case old != "":
		crashed = because(gone, because(old, Cause(f.Stderr)))
	case crashClass(f) == ClassDiskFull:
		crashed = because(gone, because("no space left on its disk", Cause(f.Stderr)))
	}

	// A turn that ended well outranks the runner's action: the work is done and on record. It stays completed if the
	// process then exits with 0, ends because it was asked to, or is ended because it lingers. pi 1.5.2 exits with 1
	// after a reply that was cut at the output limit; such a turn counts as ended.
	waited := f.Action == ActionEnd
	quiet := !f.Exit.Known || f.Exit.clean() || f.Exit.asked() || f.Action == ActionLinger || waited
	quiet = quiet || v.StopReason == StopLength && f.Exit == ExitCode(1)
	unknown := t.Lines > 0 && t.Understood == 0
	if t.State == Ended && quiet && !unknown {
		return is(Completed, "", "ended_well", "")
	}
	// A live run without a chat has done all that it was asked for. One whose chats were all refused has done none.
	if f.Unasked && t.State == None && !unknown && (waited || f.Action == ActionNone && f.Exit.Known && quiet) {
		if f.Refused != "" {
			return is(Failed, ClassExit, "refused", because("no chat reached the agent", f.Refused))
		}
		return is(Completed, "", "unasked", "")
	}

	switch f.Action {
	case ActionCancel:
		return is(Cancelled, "", "cancelled", because("cancelled", f.Why))
	case ActionTimeout:
		return is(Failed, ClassTimeout, "timeout", because("the runaway guard ended the agent", f.Why))
	case ActionStall:
		return is(Failed, ClassStalled, "stalled", because("the agent did nothing for too long", f.Why))
	case ActionUnreachable:
		return is(Failed, ClassUnreachable, "provider_unreachable",
			because("the model's provider was out of reach", f.Why))
	case ActionNotStarted:
		class := ClassSpawn
		if f.DiskFull {
			class = ClassDiskFull
		}
		return is(Failed, class, "spawn", because("the agent could not be started", f.Why))
	case ActionInput:
		return is(Failed, ClassUnknown, "input", because("the agent's input could not be continued", f.Why))
	case ActionNone, ActionLinger, ActionEnd:
	}

	if unknown {
		return is(Failed, ClassUnknownFormat, "unknown_format", "this runner understands none of the session's lines")
	}
	switch t.State {
	case Errored:
		message := cmp.Or(t.Message, "the session records a failure without a message; "+gone)
		return is(Failed, cmp.Or(t.Class, ClassProvider), "error_on_record", message)
	case Aborted:
		return is(Cancelled, "", "aborted_on_record", because("the turn was interrupted", t.Message))
	case Ended:
		return is(Failed, crashClass(f), "bad_exit", "the turn ended well, but "+crashed)
	case None, Unfinished:
	}

	switch {
	case !f.Exit.Known:
		return is(Orphaned, "", ReasonRunnerLost, "the runner stopped without a result")
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

// crashClass returns the class of an exit that nobody asked for.
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

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// ExitStatus returns the runner's exit status after this verdict: 0 exactly for completed, else the agent's own (128+n
// for signal n), and 1 if that is 0 or unknown.
func (v Verdict) ExitStatus() int {
	if v.Outcome == Completed {
		return 0
	}
	return cmp.Or(v.Exit.Status(), 1)
}

// wire is the JSON of a Verdict.
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

// MarshalJSON writes all fields; an empty one is null.
func (v Verdict) MarshalJSON() ([]byte, error) {
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	code, signal := v.Exit.Parts()
	return json.Marshal(wire{
		v.Outcome, v.StopReason, text(v.ErrorClass), text(v.Reason), text(v.Message), code, signal,
		text(v.Provider), text(v.Model),
	})
}

// UnmarshalJSON reads the JSON that MarshalJSON writes.
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
		Outcome: w.Outcome, StopReason: w.StopReason,
		ErrorClass: text(w.ErrorClass), Reason: text(w.Reason), Message: text(w.Message),
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
