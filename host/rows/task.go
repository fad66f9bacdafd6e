package rows

import (
	"fmt"

	"github.com/google/uuid"
)

// Task is a delegated task: what its author asks for, and once it has a row what was found by that.
type Task struct {
	Thread string // of the task, the child; "" for a new one
	Parent string // the thread that delegates it
	Author string // who delegates it; "" for none
	Prompt string

	Agent   string // the bot that drives the thread; "" for the house's first bot of Harness
	Harness string // "" for the agent's
	Model   string // "" for the agent's own choice
	Live    bool   // the run takes chats while it lasts

	Environment string // outranks the parent's and the house's default
	// Sandbox of the house that it shares, or SandboxOfParent; "" for one of its own. Its environment is the task's.
	Sandbox string
	Repo    string // in place of the environment's
	Branch  string
	Push    bool // push Branch to Repo after a completed run
	PR      bool // and make a pull request of it

	Trusted bool // from the operator of the host, not from a member of the house

	// Of the row.
	House    string
	Result   string // the author of the result on the parent
	Attempts int    // how often a provisioner took it, this time included
}

// HeldTask is a task that waits because its house runs as many as it may.
type HeldTask struct {
	Thread string
	Runs   int // the house's limit
}

// Reason returns why the task waits.
func (t HeldTask) Reason() string { return (&HeldError{t.Runs}).Error() }

// HeldError is returned for a run that waits because its house runs as many as it may.
type HeldError struct{ Runs int }

// Error implements error: it is the reason on the run's thread.
func (e *HeldError) Error() string { return fmt.Sprintf("the house runs %d at once", e.Runs) }

// SandboxOfParent is a new task's Sandbox for that of its parent.
const SandboxOfParent = "parent"

// Check returns an ErrInvalid for a task that can't be as it is.
func (t Task) Check() error {
	why := ""
	switch {
	case t.Sandbox != "" && t.Environment != "":
		why = "a sandbox that is shared has its environment: leave one of both out"
	case t.Sandbox != "" && t.Repo != "":
		why = "a sandbox that is shared has its files: leave repo out"
	case t.Branch != "" && t.Repo == "":
		why = "branch needs repo"
	case t.Push && t.Branch == "":
		why = "push needs repo and branch"
	case t.PR && !t.Push:
		why = "pr needs push"
	default:
		return nil
	}
	return Refuse(ErrInvalid, "the task").Because(why)
}

// runs is the namespace of the runs of tasks.
var runs = uuid.MustParse("5b0f3f43-5a8c-4d0e-9d43-6c1b2ae5f0a7")

// Run returns the id of the task's run. It is the same for each attempt.
func (t Task) Run() string { return uuid.NewSHA1(runs, []byte(t.Thread)).String() }
