// Package sandbox is the boxes that agents run in: machines that outlive a run, and that may vanish in the middle of one.
//
// A Sandbox is one box with a working directory. A Provider makes boxes, finds them again by their ids and says whether they live. Nothing in a box hangs on
// this process: what Detach has started goes on when we are gone, and a box stays until somebody destroys it.
//
// Paths that come from outside are confined: a file or a directory that would be outside of the working directory (or of the home, where that was asked
// for) is refused before anything is sent. Secrets travel in environments and request bodies, never in command lines.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// Ref names a box for good.
type Ref struct {
	Provider string `json:"provider"` // "local", "daytona"
	ID       string `json:"ref"`
}

func (r Ref) String() string { return r.Provider + ":" + r.ID }

// Sandbox is one box: where it is, and how a program and files get into it. Its methods may be used concurrently. The
// boxes of this package's providers can do more (Alive, Snapshot, Stop, Destroy, Branch); who needs that declares an
// interface of its own.
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
	Env       map[string]string // beside what the box has; names of letters, digits and _
	Stdin     io.Reader         // nil for an input that is empty; it may have no end, and wait for the output
	Timeout   time.Duration     // from the command's start; 0: DefaultTimeout
	MaxOutput int               // bytes that are kept of each of stdout and stderr; 0: DefaultMaxOutput
	// Output, where there is one, is told what comes as it comes, one call at a time: Stdout or Stderr, and the bytes.
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

// Result is how a command ended.
type Result struct {
	ExitCode  int // -1 where it was killed, or never started
	Stdout    []byte
	Stderr    []byte
	Truncated bool // more was said than was to be kept
	TimedOut  bool
	Duration  time.Duration
}

// Process is a process in a box, by its id, when it began, in the kernel's own count of ticks since its boot, and
// which boot that was, so that no other process can be taken for it.
type Process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
	Boot  string `json:"boot,omitempty"` // /proc/sys/kernel/random/boot_id; "" where it could not be read
}

// File is a file to make in a box.
type File struct {
	Path    string // relative to the working directory, or to the home folder
	InHome  bool
	Content io.Reader
	Size    int64       // of Content in bytes
	Mode    fs.FileMode // 0: 0644
}

// Options are what a new box is to be.
type Options struct {
	Labels    map[string]string // arbe.house, arbe.thread, arbe.environment
	Env       map[string]string // of all that runs in it
	Repo      string            // org/repo or its address on GitHub; for a local box also any that git knows; "" for none
	Branch    string            // to check out, begun as BranchMode says; "" for the default branch
	Token     string            // for a private repository
	Snapshot  string            // the provider's image; "" for its default. It excludes Resources
	Target    string            // the provider's region
	AutoStop  time.Duration     // a box that nobody has used for so long is stopped, and goes; 0: never
	Progress  func(step string) // is told what is being done; nil for nobody
	Ephemeral bool              // the box is for one piece of work, and may be reaped when no run is open on it

	BranchMode BranchMode // where Branch begins if the remote has it already
	Resources  Resources  // refused by the local provider
}

// Health is what is known of a box.
type Health int

// The states of a box, as far as they matter.
const (
	Unknown Health = iota // nobody can say: it may live
	Live
	Gone // there is none any more, or it has a fault that it won't recover from
)

func (h Health) String() string {
	return [...]string{"unknown", "live", "gone"}[h]
}

// Box is what a provider knows of one of its boxes.
type Box struct {
	Ref     Ref               `json:"sandbox"`
	State   string            `json:"state"` // in the provider's words
	Health  Health            `json:"-"`     // Gone also for a box with a fault, which is still to be destroyed
	Labels  map[string]string `json:"labels,omitempty"`
	Created time.Time         `json:"created"`
}

// The labels of the boxes that are made here.
const (
	LabelHouse       = "arbe.house"
	LabelThread      = "arbe.thread"
	LabelEnvironment = "arbe.environment"
	LabelEphemeral   = "arbe.ephemeral" // "true" where the box may be reaped
	// LabelInstallation is the id of the thread server's installation that the box was made for. Boxes of others are never touched.
	LabelInstallation = "arbe.installation"
	// LabelRun is the run that the box was made for.
	LabelRun = "arbe.run"
	// LabelTree is what its working directory was made of: TreeRepository, TreeFolder, or "" for nothing.
	LabelTree = "arbe.tree"
)

// What a box's working directory was made of.
const (
	TreeRepository = "repository"
	TreeFolder     = "folder"
)

// RunnerPath is where a launch puts the runner, below the home folder.
const RunnerPath = ".arbe/bin/arbe-pi-runner"

// Provider makes boxes, opens them again by their ids, and releases them. Local and Daytona are providers, and can do
// more (Name, Probe, Runs, List); who needs that declares an interface of its own.
type Provider interface {
	// Create makes a box, with the repository in it. A Create that fails leaves no box.
	Create(ctx context.Context, o Options) (Sandbox, error)
	// Open returns the box with the id, which must be live; ErrGone if there is no such box.
	Open(ctx context.Context, id string) (Sandbox, error)
	// Destroy releases the box with the id and all in it, without opening or starting it. A box that is gone already is
	// no error.
	Destroy(ctx context.Context, id string) error
}

// ErrGone says that a box is not there any more.
var ErrGone = errors.New("the sandbox is gone")

// ErrForeign says that a local box belongs to another machine, or to another data folder, so nothing is known of it
// here.
var ErrForeign = errors.New("belongs to another machine or data folder")

// ConfinedError says that a path would lead out of where it has to stay.
type ConfinedError struct{ Path, Root string }

func (e *ConfinedError) Error() string {
	return fmt.Sprintf("path confinement violation: %q is outside of %s", e.Path, e.Root)
}
