package thread

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// prefixExec begins the types of the signals of a command in the thread's box.
const prefixExec = "signal.exec."

// The types of the signals of a command. They belong to no run and change no status.
const (
	TypeExecStarted  = "signal.exec.started"          // the request, before the box is opened
	TypeExecRunning  = "signal.exec.running"          // its supervisor runs in the box, and starts the command next
	TypeExecOutput   = "signal.exec.output"           // a piece of its output
	TypeExecFinished = "signal.exec.finished"         // its end; one for each command
	TypeExecCancel   = "signal.exec.cancel_requested" // a request to end it, from anyone who may write
)

// The streams of a command's output.
const (
	StreamStdout = "stdout"
	StreamStderr = "stderr"
)

// IsExec reports whether a payload's type is that of a signal of a command.
func IsExec(typ string) bool { return strings.HasPrefix(typ, prefixExec) }

// ExecID returns the id of a command's n-th entry, from 0. A writer takes the next number: of two
// writers the server accepts one. So a command has one end, and nothing comes after it.
func ExecID(exec string, n int) string { return exec + ".exec." + strconv.Itoa(n) }

// ParseExecID returns the command and the number of an id of ExecID; false for any other id.
func ParseExecID(id string) (exec string, n int, ok bool) {
	exec, rest, _ := strings.Cut(id, ".")
	number, is := strings.CutPrefix(rest, "exec.")
	n, err := strconv.Atoi(number)
	if !is || err != nil || !isNumber(number) || !ValidRun(exec) {
		return "", 0, false
	}
	return exec, n, true
}

// Exec are the members of all signals of a command.
type Exec struct {
	Type   string `json:"type"`
	ExecID string `json:"execId"`
}

// ExecStarted is the payload that begins a command.
type ExecStarted struct {
	Exec
	Command   string `json:"command"`       // as a shell would take it
	Cwd       string `json:"cwd,omitempty"` // relative to the working directory of the box; "" for that
	TimeoutMs int64  `json:"timeoutMs"`     // the command is ended after it
}

// ExecRunning is the payload of a command's supervisor, before it starts the command.
type ExecRunning struct {
	Exec
	PID        int      `json:"pid"` // of the supervisor
	StartTicks uint64   `json:"startTicks"`
	BootID     string   `json:"bootId,omitempty"`
	Cwd        string   `json:"cwd"` // absolute
	Sandbox    *Sandbox `json:"sandbox,omitempty"`
}

// ExecOutput is a piece of a command's output.
type ExecOutput struct {
	Exec
	Stream string `json:"stream"`
	Text   string `json:"text"`
	// Truncated reports that the output has reached its limit: no further piece comes, and the command continues.
	Truncated bool `json:"truncated,omitempty"`
}

// ExecFinished is the payload that ends a command.
type ExecFinished struct {
	Exec
	ExitCode   *int    `json:"exitCode"` // nil if a signal ended it, or if its end is not known
	ExitSignal *string `json:"signal"`
	DurationMs int64   `json:"durationMs"`
	TimedOut   bool    `json:"timedOut,omitempty"`
	Cancelled  bool    `json:"cancelled,omitempty"`
	Dropped    int64   `json:"dropped,omitempty"` // bytes of the output beyond its limit
	Error      string  `json:"error,omitempty"`   // why it could not start, or why its end is not known
}

// ExecCancel is the payload that asks for the end of a command.
type ExecCancel struct {
	Exec
	Reason string `json:"reason,omitempty"`
}

// OpenExec is a command without an end.
type OpenExec struct {
	ID      string        `json:"id"`
	Next    int           `json:"next"` // the number of its next entry
	Timeout time.Duration `json:"timeout"`
	Began   time.Time     `json:"began"` // by the server's clock
	Last    time.Time     `json:"last"`  // of its newest entry
	Running *ExecRunning  `json:"running,omitempty"`
}

// command takes a signal of a command.
func (f *Fold) command(typ string, e Entry, at time.Time) {
	id, n, ok := ParseExecID(e.ID)
	if !ok {
		return
	}
	f.exec = at
	i := f.indexOfExec(id)
	if i < 0 {
		if p := payloadOf[ExecStarted](e); n == 0 && typ == TypeExecStarted && p != nil {
			timeout := time.Duration(p.TimeoutMs) * time.Millisecond
			f.execs = append(f.execs, OpenExec{ID: id, Next: 1, Timeout: timeout, Began: at, Last: at})
		}
		return
	}
	x := &f.execs[i]
	x.Next, x.Last = max(x.Next, n+1), at
	switch typ {
	case TypeExecRunning:
		x.Running = cmp.Or(payloadOf[ExecRunning](e), x.Running)
	case TypeExecFinished:
		f.execs = slices.Delete(f.execs, i, i+1)
	}
}

// execSetup takes a step of making the box of a command, a sign of life of its host; false for any other step.
func (f *Fold) execSetup(e Entry, at time.Time) bool {
	p := payloadOf[SetupStep](e)
	if p == nil || p.ExecID == "" {
		return false
	}
	if i := f.indexOfExec(p.ExecID); i >= 0 {
		f.execs[i].Last = at
	}
	return true
}

// LastExec returns when the newest entry of a command came, by the server's clock; zero where the thread has none.
func (f *Fold) LastExec() time.Time { return f.exec }

// OpenExecs returns the commands without an end, in the order of their start.
func (f *Fold) OpenExecs() []OpenExec { return slices.Clone(f.execs) }

// OpenExec returns the command with this id; false where it has ended, or the thread has none.
func (f *Fold) OpenExec(id string) (OpenExec, bool) {
	if i := f.indexOfExec(id); i >= 0 {
		return f.execs[i], true
	}
	return OpenExec{}, false
}

func (f *Fold) indexOfExec(id string) int {
	return slices.IndexFunc(f.execs, func(x OpenExec) bool { return x.ID == id })
}
