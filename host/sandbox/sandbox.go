// Package sandbox makes and uses boxes: the machines that agents run in. A box outlives its runs, and may vanish in the
// middle of one.
//
// A Sandbox is one box with a working directory. The folder that the working directory of a new box is in is the
// workspace: other repositories and folders stand there, too. A Provider makes boxes, opens them again by their ids and
// releases them. A box does not depend on this process: commands that Detach has started outlive it, and a box stays
// until it is destroyed.
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
	"time"
)

// Ref is the name of a box. It never changes.
type Ref struct {
	Provider string `json:"provider"` // "local", "daytona"
	ID       string `json:"ref"`
}

func (r Ref) String() string { return r.Provider + ":" + r.ID }

// Sandbox is one box: where it is, and how a program and files get into it. Its methods may be used concurrently. The
// boxes of this package's providers can do more (Alive, Snapshot, Stop, At, Clone): a caller that needs a power
// declares an interface for it.
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

// runVariable is the variable of a runner's environment with its run.
const runVariable = "ARBE_RUN_ID"

// File is a file to make in a box.
type File struct {
	Path    string // relative to the working directory, or to the home folder
	InHome  bool
	Content io.Reader
	Size    int64       // of Content in bytes
	Mode    fs.FileMode // 0: 0644
}

// Options describe a new box.
type Options struct {
	Labels    map[string]string // arbe.house, arbe.thread, arbe.environment
	Env       map[string]string // of all commands in the box
	Repo      string            // org/repo or its address on GitHub; for a local box any address for git; "" for none
	Branch    string            // to check out: the remote's, or else a new one; "" for the default branch
	GitHub    string            // the server of org/repo; "" for the provider's
	Token     string            // for GitHub; no other server gets it
	Image     string            // of a registry, from which the provider builds the box; "" for Snapshot
	Snapshot  string            // the provider's image; "" for its default. It excludes Image and Resources
	Volumes   []Volume          // storage of the provider's
	Work      string            // the working directory, below the workspace; "" for one named as Repo is
	Target    string            // the provider's region
	AutoStop  time.Duration     // an idle box is stopped, and an ephemeral one deleted, after this time; 0: never
	Progress  func(step string) // receives each step; nil for none
	Ephemeral bool              // the box may be released when no run is open in it

	Resources Resources // only with Image: a snapshot has its own
}

// Volume is storage of a provider that outlives boxes, and where a box has it.
type Volume struct {
	Name string // or its id
	Path string // absolute in the box
}

// Health is the state of a box.
type Health int

// The states of a box.
const (
	Unknown Health = iota // no evidence: the box may be live
	Live
	Gone // the box does not exist any more, or has a fault that it can't recover from
)

func (h Health) String() string {
	return [...]string{"unknown", "live", "gone"}[h]
}

// Box is a provider's record of one of its boxes.
type Box struct {
	Ref     Ref               `json:"sandbox"`
	State   string            `json:"state"` // in the provider's words
	Health  Health            `json:"-"`     // Gone also for a box with a fault, which still has to be destroyed
	Labels  map[string]string `json:"labels,omitempty"`
	Created time.Time         `json:"created"`
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

// Paths in a box, relative to the home folder: the runner, and the log of the runner that was started last.
const (
	RunnerPath = ".arbe/bin/arbe-pi-runner"
	RunnerLog  = ".arbe/runner.log"
)

// Provider makes boxes, opens them again by their ids, and releases them. Local and Daytona are providers, and can do
// more (Name, Probe, Runs, List): a caller that needs a power declares an interface for it.
type Provider interface {
	// Create makes a box, with the repository in it. A Create that fails leaves no box.
	Create(ctx context.Context, o Options) (Sandbox, error)
	// Open returns the box with the id, which must be live; ErrGone if there is no such box.
	Open(ctx context.Context, id string) (Sandbox, error)
	// Destroy releases the box with the id and all in it, without opening or starting it. A box that is gone already is
	// no error.
	Destroy(ctx context.Context, id string) error
}

// ErrGone is returned if a box does not exist any more.
var ErrGone = errors.New("the sandbox is gone")

// ErrForeign is returned if a local box belongs to another machine or to another data folder. Its state is unknown
// here.
var ErrForeign = errors.New("belongs to another machine or data folder")

// ConfinedError is returned for a path that leads out of the folder Root.
type ConfinedError struct{ Path, Root string }

func (e *ConfinedError) Error() string {
	return fmt.Sprintf("path confinement violation: %q is outside of %s", e.Path, e.Root)
}
