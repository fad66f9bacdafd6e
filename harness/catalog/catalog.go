// Package catalog names the coding agents. It is the part of a harness.Spec that a host needs, which starts none: it
// builds on every system.
package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/session"
)

// Agent is a coding agent.
type Agent struct {
	Name    string // the value of --harness and of the field harness of a run's signals
	Binary  string // the program's name in PATH
	Package string // the npm package, with the version that is tested most

	LivePackage string // Package for a live run, where that version can't be spoken to while it runs; "" where it can
}

// ForLive returns the agent with the package of a live run.
func (a Agent) ForLive() Agent {
	a.Package = cmp.Or(a.LivePackage, a.Package)
	return a
}

// Install returns the command that installs the agent.
func (a Agent) Install() string { return "npm i -g " + a.Package }

// The agents.
var (
	Pi = Agent{
		session.Pi.Harness, "pi", "@earendil-works/pi-coding-agent@0.78.0", "@earendil-works/pi-coding-agent@0.87.1",
	}
	Codex  = Agent{session.Codex.Harness, "codex", "@openai/codex@0.169.0", ""}
	Claude = Agent{session.Claude.Harness, "claude", "@anthropic-ai/claude-code@2.1.329", ""}
)

// agents are all of them, sorted by name.
var agents = []Agent{Claude, Codex, Pi}

// Lookup returns the agent named name.
func Lookup(name string) (Agent, error) {
	i := slices.IndexFunc(agents, func(a Agent) bool { return a.Name == name })
	if i < 0 {
		return Agent{}, fmt.Errorf("unknown harness %q: use one of %s", name, strings.Join(Names(), ", "))
	}
	return agents[i], nil
}

// Names returns the names of all agents, sorted.
func Names() (names []string) {
	for _, a := range agents {
		names = append(names, a.Name)
	}
	return names
}
