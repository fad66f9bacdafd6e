// Package sandbox is the vocabulary of boxes: the machines that agents run in. A box outlives its runs, and may vanish
// in the middle of one.
//
// A Sandbox is one box with a working directory. The folder that the working directory of a new box is in is the
// workspace: other repositories and folders stand there, too. A Provider makes boxes, opens them again by their ids and
// releases them. A box does not depend on this process: commands that Detach has started outlive it, and a box stays
// until it is destroyed.
//
// A Kind describes the boxes of one provider, and opens it. Nobody but the provider's own package knows its name: all
// others ask for Traits, or for an interface that only some providers implement, and refuse the rest with a sentence.
// Package providers lists the kinds. What providers share is in package kit.
//
// Paths from outside are confined: a path outside of the working directory (or of the home folder, if File.InHome is
// set) is refused before anything is sent. Secrets travel in environments and request bodies, never in command lines.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"time"
)

// Ref is the name of a box. It never changes.
type Ref struct {
	Provider string `json:"provider"` // the name of its Kind
	ID       string `json:"ref"`
}

func (r Ref) String() string { return r.Provider + ":" + r.ID }

// Sandbox is one box: where it is, and how a program and files get into it. Its methods may be used concurrently. Boxes
// can do more (Alive, Snapshot, Stop, At, Clone): a caller that needs a power asks for an interface of it.
type Sandbox interface {
	Ref() Ref
	// WorkDir is the folder of the repository or the folder that is worked on, absolute in the box.
	WorkDir() string
	// Home is the home folder of the box's user, absolute in the box.
	Home() string

	// Exec runs a command to its end. A command that ran is no error, however it ended: the Result has its exit code,
	// and whether it timed out.
	Exec(ctx context.Context, c Command) (Result, error)
	// Detach starts a command that outlives this process, with its output in the file log in the home folder, and
	// returns at once.
	Detach(ctx context.Context, c Command, log string) (Process, error)
	// Upload makes files, whole or not at all, with the folders that they need.
	Upload(ctx context.Context, files ...File) error
	// Download copies the file at path, relative to the home folder, to w. After an error w may hold a part of it.
	Download(ctx context.Context, path string, w io.Writer) error
}

// Command is a command to run in a box.
type Command struct {
	Argv      []string
	Dir       string            // below the working directory; "" for that
	Env       map[string]string // added to the box's own; names of letters, digits and _
	Stdin     io.Reader         // nil for an empty input; it may be endless, and may wait for the output
	Timeout   time.Duration     // from the command's start; 0: DefaultTimeout
	MaxOutput int               // bytes to keep of each of stdout and stderr; 0: DefaultMaxOutput
	// Output receives the output while the command runs, one call at a time; nil for none.
	Output func(s Stream, b []byte)
}

// Defaults of a Command.
const (
	DefaultTimeout   = 10 * time.Minute
	DefaultMaxOutput = 1 << 20
)

// Stream is one of a command's two outputs.
type Stream int

// The two outputs.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Result is the end of a command.
type Result struct {
	ExitCode  int // -1 if it was killed, or never started
	Stdout    []byte
	Stderr    []byte
	Truncated bool // the output exceeded MaxOutput
	TimedOut  bool
	Duration  time.Duration
}

// Process identifies a process in a box. Its start, in the kernel's clock ticks since boot, and the id of the boot
// distinguish it from a later process with the same number.
type Process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
	Boot  string `json:"boot,omitempty"` // /proc/sys/kernel/random/boot_id; "" if unknown

	// Run stands for the runner of a run, in a question with PID 0.
	Run string `json:"-"`
}

// RunVariable is the variable of a runner's environment with its run.
const RunVariable = "ARBE_RUN_ID"

// File is a file to make in a box.
type File struct {
	Path    string // relative to the working directory, or to the home folder
	InHome  bool
	Content io.Reader
	Size    int64       // of Content in bytes
	Mode    fs.FileMode // 0: 0644
}

// Reader returns the content of f; an empty one where it has none.
func (f File) Reader() io.Reader {
	if f.Content == nil {
		return strings.NewReader("")
	}
	return f.Content
}

// Perm returns the mode of f.
func (f File) Perm() fs.FileMode {
	if f.Mode == 0 {
		return 0o644
	}
	return f.Mode.Perm()
}

// Labels of boxes.
const (
	LabelHouse       = "arbe.house"
	LabelThread      = "arbe.thread"
	LabelEnvironment = "arbe.environment"
	LabelEphemeral   = "arbe.ephemeral" // "true" if the box may be released
	// LabelInstallation is the id of the thread server's installation. A reconciler never touches boxes of another one.
	LabelInstallation = "arbe.installation"
	// LabelRun is the run that the box was made for.
	LabelRun = "arbe.run"
	// LabelRepositories and LabelFolders are the paths of repositories and of copied folders below the workspace, with
	// commas between; "" if there is only the working directory.
	LabelRepositories = "arbe.repositories"
	LabelFolders      = "arbe.folders"
	// LabelTree is the origin of the working directory: TreeRepository, TreeFolder, or "" for an empty one.
	LabelTree = "arbe.tree"
	// LabelRow is the id of the box's row in a database. Only a host with that database releases the box.
	LabelRow = "arbe.sandbox"
)

// Values of LabelTree.
const (
	TreeRepository = "repository"
	TreeFolder     = "folder"
)

// WorkFolder is the name of the working directory of a box without a repository.
const WorkFolder = "work"

// Paths in a box, relative to the home folder: the runner, and the log of the runner that was started last.
const (
	RunnerPath = ".arbe/bin/arbe-pi-runner"
	RunnerLog  = ".arbe/runner.log"
)

// ErrGone is returned if a box does not exist any more.
var ErrGone = errors.New("the sandbox is gone")

// ErrForeign is returned if a box belongs to another machine, or to another store of boxes there. Its state is unknown
// here.
var ErrForeign = errors.New("belongs to another machine or data folder")

// ErrFrozen is returned for a question that only a box that runs can answer, about one that is Frozen.
var ErrFrozen = errors.New("the sandbox is frozen")

// ConfinedError is returned for a path that leads out of the folder Root.
type ConfinedError struct{ Path, Root string }

func (e *ConfinedError) Error() string {
	return fmt.Sprintf("path confinement violation: %q is outside of %s", e.Path, e.Root)
}

// Temporary reports whether a provider that has failed may succeed when the call is repeated later: it can't be reached
// now, is overloaded, or has no room for a box. Errors of providers say so by a method Busy.
func Temporary(err error) bool {
	if _, network := errors.AsType[*net.OpError](err); network {
		return true
	}
	var busy interface{ Busy() bool }
	return errors.As(err, &busy) && busy.Busy()
}
