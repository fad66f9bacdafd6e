// Package harness describes, starts and stops coding agents. A Spec is one kind of agent, as data: its command line,
// its session files, its signals; where data does not suffice, it has a func field. A Process is a started agent: it
// has its own process group, its output goes to files, and its exit is read from the wait status. A Tree finds the
// agent's processes. A Tally follows an agent's last turn. A Live is how a running agent is spoken to.
//
// The package posts nothing and decides no verdict. A program that starts agents calls Main first.
package harness

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/session"
)

// Spec is one harness.
type Spec struct {
	catalog.Agent
	// Native are patterns of the program's path below a node_modules folder, for a package whose link in PATH is a
	// wrapper script. The wrapper would stay as the agent's parent. nil: npm links the program itself.
	Native []string
	// Node is the least version of Node that the agent runs on, as its package.json has it (engines); "": it is a
	// program of its own.
	Node string
	// Version reads the version of the agent whose binary has the given path from its files; "" if they lack it. It
	// starts no process: pi 0.78.0 takes 0.9 s to print its version.
	Version func(binary string) string
	// Versions are those that this Spec is tested with.
	Versions []string

	// Dialect decodes the lines of the agent's session.
	Dialect session.Dialect
	// Report parses a line of the agent's stdout; nil: its stdout is not parsed.
	Report func(line []byte) Report
	// Answer parses a line of the agent's stdout for a person: text is the agent's reply so far, and final is set if a
	// turn has ended well with the last reply. nil: the agent itself prints its answer.
	Answer func(line []byte) (text string, final bool)
	// EndsOnStdout: a turn ends with a line on stdout, not with the session's last line.
	EndsOnStdout bool

	// MostPrompt is the most characters that a turn takes; 0: no limit is known.
	MostPrompt int

	// Stop is the signal on which the agent ends its tools, records what it can and exits.
	Stop syscall.Signal
	// Unreachable is the default limit of the agent's wait for an unreachable provider, which Report detects; 0: the
	// agent gives up itself.
	Unreachable time.Duration

	// SessionFile is the path for a rebuilt or new session with the given id that began at at. It is the agent's own
	// path as far as that can be known: codex's index may have that path, and codex then searches nowhere else.
	SessionFile func(b Box, id string, at time.Time) string
	// Create returns the first bytes of a new session file for an agent that runs in cwd. nil: the agent makes the
	// file and finds it by the session's id.
	Create func(id, cwd string, at time.Time) []byte
	// FindSession returns the path of the session with the id, "" if there is none. nil: the agent gets the path.
	FindSession func(b Box, id string) string
	// PrintsID: the agent chooses the id of a new session, and prints it on stdout.
	PrintsID bool
	// Subagents returns the sessions of the subagents of a session; nil: the agent has none. others belongs to the
	// caller: Subagents adds the files of other sessions to it, and reads none that is in it. For a session without an
	// id, which has not begun, those are all files.
	Subagents func(b Box, s Session, others map[string]bool) []Session

	// Prepare makes what the agent needs in the box; nil: nothing.
	Prepare func(Box) error
	// Command returns the command for one run.
	Command func(Box, Task) Invocation
	// Live is how the running agent is spoken to.
	Live *Live
}

// Box is the environment of an agent.
type Box struct {
	Getenv func(string) string // the agent's environment
	Dir    string              // folder of one thread's sessions, for an agent that gets a path
}

// Home is the home folder in an environment: $HOME, or if that is empty the home of the account, as for codex and
// claude-code; "" if neither is known.
func Home(getenv func(string) string) string {
	if home := getenv("HOME"); home != "" {
		return home
	}
	return homeOf("/etc/passwd", strconv.Itoa(os.Getuid()))
}

// homeOf is the home of the account with the number uid in the file list; "" if it has none. (os/user would add 40 KB
// to the box's binary.)
func homeOf(list, uid string) (home string) {
	_ = eachLine(list, func(line string) { // no list, no home
		// name:password:uid:gid:comment:home:shell
		if fields := strings.Split(line, ":"); home == "" && len(fields) > 5 && fields[2] == uid {
			home = fields[5]
		}
	})
	return home
}

// Session is one session file.
type Session struct {
	Path string
	ID   string
}

// sessionJSON is the JSON of a Session. A JSON string is UTF-8; a path need not be.
type sessionJSON struct {
	Path  string `json:"path"`
	Bytes []byte `json:"bytes,omitempty"` // of the path, if it is not UTF-8
	ID    string `json:"id"`
}

// MarshalJSON writes {path, id}, and the path's bytes if it is not UTF-8.
func (s Session) MarshalJSON() ([]byte, error) {
	j := sessionJSON{Path: s.Path, ID: s.ID}
	if !utf8.ValidString(s.Path) {
		j.Bytes = []byte(s.Path)
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads the JSON of MarshalJSON.
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

// Task is an agent's work in one run.
type Task struct {
	Session        // to work in; Path or ID may be empty
	Resume  bool   // the session has turns already
	Model   string // "": the agent's default
	Args    []string
	Prompt  string // not empty, unless Person
	Person  bool   // a person uses the agent's own interface, and may have no prompt
}

// Invocation is the command line, environment and input for a Task.
type Invocation struct {
	Args  []string // without the binary
	Env   []string // NAME=value; the environment's own values count
	Stdin string   // the agent's whole input; may be empty
}

// Proven reports whether the Spec is tested with a version.
func (s Spec) Proven(version string) bool { return slices.Contains(s.Versions, version) }

// maxArg is Linux's limit on one argument, in bytes (MAX_ARG_STRLEN).
const maxArg = 128<<10 - 1

// fits reports whether a prompt can be an argument.
func fits(prompt string) bool { return len(prompt) <= maxArg && strings.IndexByte(prompt, 0) < 0 }

// specs are the harnesses by name.
var specs = map[string]Spec{pi.Name: pi, codex.Name: codex, claude.Name: claude}

// Lookup returns the Spec named name.
func Lookup(name string) (Spec, error) {
	a, err := catalog.Lookup(name)
	return specs[a.Name], err
}

// Names returns the names of all harnesses, sorted.
func Names() []string { return catalog.Names() }
