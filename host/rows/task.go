package rows

import "github.com/google/uuid"

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

	Trusted bool // from the operator of the host, not from a member of the house

	// Of the row.
	House    string
	Result   string // the author of the result on the parent
	Attempts int    // how often a provisioner took it, this time included
}

// SandboxOfParent is a new task's Sandbox for that of its parent.
const SandboxOfParent = "parent"

// runs is the namespace of the runs of tasks.
var runs = uuid.MustParse("5b0f3f43-5a8c-4d0e-9d43-6c1b2ae5f0a7")

// Run returns the id of the task's run. It is the same for each attempt.
func (t Task) Run() string { return uuid.NewSHA1(runs, []byte(t.Thread)).String() }
