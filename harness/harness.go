// Package harness knows the coding agents: how each is started, where its session lives, how it is best stopped, and what its session says of
// a turn. An agent is a Spec, which is data; what differs more than data can say is a func field of it. A Process is a started agent: it has
// its own process group, its output goes to files, and its end is the true one, read from the wait status.
//
// The package posts nothing and decides nothing: a Tally gives the outcome.Turn that a verdict rests on, and the caller asks for the verdict.
package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"arbe.0sk.ar/runner/session"
)

// Spec is one harness.
type Spec struct {
	// Name is what --harness takes, and what every signal of a run says.
	Name string
	// Binary is looked for in PATH where no path is given.
	Binary string
	// Native are the places, below a node_modules folder, where npm's packages keep the program itself: what stands in PATH then is a wrapper, which would
	// stand between us and the agent. None where the program is what npm links.
	Native []string
	// Install is the command that installs the agent, for whoever has not.
	Install string
	// Version is the version of the agent whose binary has the given path, read from its files; "" where they don't say.
	// It starts no process: asking pi 0.78.0 for its version takes 0.9 s.
	Version func(binary string) string
	// Versions are those that this Spec is proven with.
	Versions []string

	// Dialect is how the agent writes its session.
	Dialect session.Dialect
	// Said is what a line of the agent's stdout tells; nil where that doesn't count.
	Said func(line []byte) Said
	// EndsOnStdout says that the agent's turn is over when stdout says so, and not before.
	EndsOnStdout bool

	// Stop is the signal that lets the agent end in order: it ends its tools and records what it can.
	Stop syscall.Signal
	// Unreachable is how long an agent may wait for a provider that it can't reach, as Said tells; 0 for one that gives up by itself.
	Unreachable time.Duration

	// SessionFile is where a session with the given id, which began at at, is put: one that was rebuilt, or a new one that is made beforehand. It is where the
	// agent itself would have it, as far as that can be known: codex's own index may have it there, and then it is looked for nowhere else.
	SessionFile func(b Box, id string, at time.Time) string
	// Create makes the first bytes of a new session file for an agent that runs in cwd. nil for an agent that makes its own file: it goes by the session's id.
	Create func(id, cwd string, at time.Time) []byte
	// FindSession is the path of the session that has the id, "" where there is none; nil for an agent that goes by the path.
	FindSession func(b Box, id string) string
	// TellsID says that the agent chooses the id of a new session, and says it on stdout.
	TellsID bool
	// Subagents are the sessions of the subagents of the one at path that were written to since; nil for an agent that has none. others is the caller's: it
	// holds what was found to be somebody else's.
	Subagents func(path, id string, since time.Time, others map[string]bool) []Session

	// Prepare makes what the agent needs in the box; nil where that is nothing.
	Prepare func(Box) error
	// Command is what to start for one run.
	Command func(Box, Task) Invocation
}

// Box is what an agent finds where it runs.
type Box struct {
	Getenv func(string) string // the agent's environment
	Dir    string              // the folder for one thread's sessions, for an agent that goes by the path
}

// Home is the agent's home folder: $HOME, or that of its account where HOME is not set or empty, as codex and
// claude-code have it; "" where neither is known.
func (b Box) Home() string { return Home(b.Getenv) }

// Home is the home folder in an environment; see Box.Home.
func Home(getenv func(string) string) string {
	if home := getenv("HOME"); home != "" {
		return home
	}
	return homeOf("/etc/passwd", strconv.Itoa(os.Getuid()))
}

// homeOf is the home of the account with the number uid in a list of accounts; "" where it has none. (The library's os/user
// would be 40 KB of the box's binary.)
func homeOf(list, uid string) string {
	f, err := os.Open(list)
	if err != nil {
		return ""
	}
	defer f.Close() // read only: nothing to lose
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// name:password:uid:gid:comment:home:shell
		if fields := strings.Split(lines.Text(), ":"); len(fields) > 5 && fields[2] == uid {
			return fields[5]
		}
	}
	return ""
}

// Session is one session file.
type Session struct {
	Path string
	ID   string
}

// sessionJSON is a Session in JSON, whose strings are UTF-8, which a path need not be.
type sessionJSON struct {
	Path  string `json:"path"`
	Bytes []byte `json:"bytes,omitempty"` // of the path, where it is no UTF-8
	ID    string `json:"id"`
}

// MarshalJSON writes {path, id}, with the path's bytes where a string can't hold them.
func (s Session) MarshalJSON() ([]byte, error) {
	j := sessionJSON{Path: s.Path, ID: s.ID}
	if !utf8.ValidString(s.Path) {
		j.Bytes = []byte(s.Path)
	}
	return json.Marshal(j)
}

// UnmarshalJSON is the way back.
func (s *Session) UnmarshalJSON(b []byte) error {
	var j sessionJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if *s = (Session{j.Path, j.ID}); j.Bytes != nil {
		s.Path = string(j.Bytes)
	}
	return nil
}

// Task is what an agent is asked to do in one run.
type Task struct {
	Session        // to work in; the parts that the agent goes by
	Resume  bool   // the session is there already, with turns in it
	Model   string // "" for the agent's own choice
	Args    []string
	Prompt  string // not empty, but where it may be left out
	Person  bool   // a person sits at the agent's own terminal interface, and may have no prompt
}

// Invocation is how a Task is put to an agent.
type Invocation struct {
	Args  []string // without the binary
	Env   []string // NAME=value, for names that the environment doesn't have yet
	Stdin string   // what the agent reads before its input ends; "" for an input that is empty
}

// Proven reports whether the Spec is proven with a version.
func (s Spec) Proven(version string) bool { return slices.Contains(s.Versions, version) }

// maxArg is how long one argument may be. Linux takes 131,071 bytes (MAX_ARG_STRLEN).
const maxArg = 128<<10 - 1

// fits reports whether a prompt can be an argument.
func fits(prompt string) bool { return len(prompt) <= maxArg && strings.IndexByte(prompt, 0) < 0 }

// specs are the harnesses by name.
var specs = map[string]Spec{pi.Name: pi, codex.Name: codex, claude.Name: claude}

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
