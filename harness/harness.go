// Package harness knows the coding agents: how each is started, where its session lives, how it is best stopped, and what its session says of
// a turn. An agent is a Spec, which is data; what differs more than data can say is a func field of it. A Process is a started agent: it has
// its own process group, its output goes to files, and its end is the true one, read from the wait status.
//
// The package posts nothing and decides nothing: a Tally gives the outcome.Turn that a verdict rests on, and the caller asks for the verdict.
package harness

import (
	"fmt"
	"sort"
	"strings"
	"syscall"
	"time"

	"arbe.0sk.ar/runner/session"
)

// Spec is one harness.
type Spec struct {
	// Name is what --harness takes, and what every signal of a run says.
	Name string
	// Binary is looked for in PATH where no path is given.
	Binary string
	// Install is the command that installs the agent, for whoever has not.
	Install string
	// Dialect is how the agent writes its session.
	Dialect session.Dialect
	// Stop is the signal that lets the agent end in order: it ends its tools and records what it can.
	Stop syscall.Signal

	// SessionFile is where a new session is kept: a path in dir, the folder of one thread's sessions.
	SessionFile func(dir, sessionID string, at time.Time) string
	// Create makes the first bytes of a new session file for an agent that runs in cwd.
	Create func(sessionID, cwd string, at time.Time) []byte
	// Command is what to start for one run.
	Command func(Task) Invocation
	// Version is the version of the agent whose binary has the given path, read from its files; "" where they don't say.
	// It starts no process: asking pi 0.78.0 for its version takes 0.9 s.
	Version func(binary string) string
}

// Task is what an agent is asked to do in one run.
type Task struct {
	Session string   // the session file's path
	Model   string   // "" for the agent's own choice
	Args    []string // further arguments, as the user gave them
	Prompt  string   // not empty, but where it may be left out
	Person  bool     // a person sits at the agent's own terminal interface, and may have no prompt
}

// Invocation is how a Task is put to an agent.
type Invocation struct {
	Args  []string // without the binary
	Env   []string // NAME=value, for names that the environment doesn't have yet
	Stdin string   // what the agent reads before its input ends; "" for an input that is empty
}

// maxArg is how long one argument may be. Linux takes 131,071 bytes (MAX_ARG_STRLEN).
const maxArg = 128<<10 - 1

// specs are the harnesses by name.
var specs = map[string]Spec{"pi": pi}

// Lookup returns the Spec named name.
func Lookup(name string) (Spec, error) {
	s, ok := specs[name]
	if !ok {
		return Spec{}, fmt.Errorf("unknown harness %q: use one of %s", name, strings.Join(Names(), ", "))
	}
	return s, nil
}

// Names are the harnesses there are, sorted.
func Names() []string {
	var names []string
	for n := range specs {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}
