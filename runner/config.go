package runner

import (
	"cmp"
	"io"
	"log/slog"
	"os"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
	"arbe.0sk.ar/runner/thread/redact"
)

// Defaults of a Config.
const (
	DefaultGuard     = 72 * time.Hour
	DefaultHeartbeat = 5 * time.Second
	DefaultTimeout   = 30 * time.Second
	DefaultIdle      = 30 * time.Minute
)

// Config configures a run. Each field's comment gives the meaning of its zero value.
type Config struct {
	Spec    harness.Spec
	Version string // of this runner

	ThreadID string
	RunID    string
	Author   string          // of the entries; "" for none
	Sandbox  *thread.Sandbox // the box that the run is in; nil if unknown

	Binary  string   // path of the agent's binary; "": found by harness.Find
	Args    []string // more arguments for the agent
	Model   string   // "": the agent's default
	Prompt  string   // "": the run's prompt on the thread
	Cwd     string   // the agent's working directory, absolute
	Session string   // path of the session file; "": a new one in the state folder

	Resume    bool     // continue the session of the thread's last run
	Hydrate   bool     // with Resume: always rebuild the session from the thread
	CwdGiven  bool     // with Resume: Cwd was chosen, it is not just the caller's directory
	NextIndex int      // index of the first line of Session to post, if the thread has the line before it; 0: unknown
	Environ   []string // of the runner, NAME=value
	State     string   // the state folder

	Guard       time.Duration // limit of the agent's run time; 0: DefaultGuard
	GuardWhy    string        // the reason for Guard, for people; "" for none
	Unreachable time.Duration // limit of the agent's wait for its provider; 0: that of Spec, 0 there: none
	Stall       time.Duration // limit of the time without a line, output or work; 0: none
	Heartbeat   time.Duration // interval of heartbeats; 0: DefaultHeartbeat
	Timeout     time.Duration // timeout of a silent server at the start, and of a lingering agent; 0: DefaultTimeout

	// Live: the agent gets the thread's chats while it runs, and the run ends when it has waited for Idle (0:
	// DefaultIdle).
	Live bool
	Idle time.Duration

	KillLeftovers bool // end the processes that the agent leaves behind also after a normal end

	Client *client.Client
	Redact *redact.Redactor
	Log    *slog.Logger

	// ByHand: a person watches. The agent's output is copied to Stdout and Stderr, and the delivery of the terminal is
	// given up after a minute.
	ByHand         bool
	Stdout, Stderr io.Writer

	// TTY is the terminal in which a person uses the agent's own interface, and ends the agent: it may linger, and
	// needs no Prompt. nil: the agent has none.
	TTY *os.File

	Folder *runfolder.Folder // what the run is recorded in; Run closes it

	// Under a keeper: its process id, and the number of workers before this one.
	Keeper     int
	Restarts   int
	CloseInput func() error // has the keeper close its end of the agent's input; nil: no keeper
	Unwritable string       // why the run can be recorded in memory alone: its agent is not started; "": it is on disk

	// Of a lost run that Recover or a later run finishes.
	until   int  // index of the next run's first line in the session; 0: none
	passing bool // a later run finishes it: what the server refuses stays for Recover

	intervals intervals
}

// intervals are those that tests shorten. 0 means the constant of the name.
type intervals struct {
	lookEvery   time.Duration
	grace       time.Duration
	retryRead   time.Duration
	retryPrompt time.Duration

	// reached, where it is not nil, is called at the places at which a worker may die while it gives the agent a chat.
	reached func(place, chat string)
}

func (c *Config) defaults() {
	c.Guard = cmp.Or(c.Guard, DefaultGuard)
	c.Heartbeat = cmp.Or(c.Heartbeat, DefaultHeartbeat)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Idle = cmp.Or(c.Idle, DefaultIdle)
	c.Unreachable = cmp.Or(c.Unreachable, c.Spec.Unreachable)
	c.intervals.lookEvery = cmp.Or(c.intervals.lookEvery, lookEvery)
	c.intervals.grace = cmp.Or(c.intervals.grace, grace)
	c.intervals.retryRead = cmp.Or(c.intervals.retryRead, retryRead)
	c.intervals.retryPrompt = cmp.Or(c.intervals.retryPrompt, retryPrompt)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Redact = cmp.Or(c.Redact, &redact.Redactor{})
}
