package thread

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// The types of payloads that only the host posts.
const (
	TypeClaim       = "signal.dispatch.claimed"      // id run.<k>: the k-th run of the thread is this one
	TypePush        = "signal.dispatch.push"         // the result of pushing a run's work
	TypeSync        = "signal.dispatch.sync"         // the result of copying a run's work back
	TypeSandboxKept = "signal.dispatch.sandbox_kept" // why a box outlives the run that it was made for

	TypeSandboxReleased = "signal.dispatch.sandbox_released" // the thread's box is deleted next

	TypeSandboxResumed = "signal.thread.sandbox_resumed" // the thread's box is dead, and has a successor

	TypeTaskWaits = "signal.thread.task_waits" // a task or a run waits because its house runs as many as it may
)

// IsHostType reports whether only hosts post signals of a type. A signal that asks for something, as for a run's end,
// is of anybody who may write.
func IsHostType(typ string) bool {
	switch typ {
	case TypeClaim, TypeSandbox, TypePush, TypeSync, TypeSandboxKept, TypeSandboxResumed, TypeAgentSpawn,
		TypeChildFinished, TypeTaskWaits, TypeExecStarted, TypeDecided, TypeDelta:
		return true
	}
	return IsSetup(typ) || strings.HasPrefix(typ, prefixReaction) && typ != TypeReactionCancel
}

// prefixSetup begins the types of the steps of making a box.
const prefixSetup = "signal.setup."

// The steps of making a box, as the last part of a signal.setup type.
const (
	StepBox        = "box" // the machine, before anything is in it
	StepRepository = "repository"
	StepFolder     = "folder"
	StepFile       = "file"
	StepAgent      = "agent"
	StepCommand    = "command"
	StepWait       = "wait" // every 30 s while one of the others lasts
)

// ClaimID returns the id by which a launch claims to be the thread's k-th run, from 0. Of two launches at the same time
// one gets it.
func ClaimID(k int) string { return "run." + strconv.Itoa(k) }

// Claim takes the number of a thread's next run for one run.
type Claim struct{ Signal }

// After is the launch's request for a run's box once the run has ended.
type After struct {
	Push *AfterPush `json:"push,omitempty"`
	Sync *AfterSync `json:"sync,omitempty"`
	Keep bool       `json:"keep,omitempty"` // the box stays until it is removed by hand
}

// Work reports whether there is work after the run: a push or a copy back.
func (a *After) Work() bool { return a != nil && (a.Push != nil || a.Sync != nil) }

// AfterPush asks for the branch of a completed run to be pushed to Repo, the repository that the launch was given, and
// for a pull request where PR is set. Environment is that whose secret GITHUB_TOKEN is the token; "" for the host's
// own.
type AfterPush struct {
	Repo   string `json:"repo"`
	Branch string `json:"branch"`
	PR     bool   `json:"pr"`

	Environment string `json:"environment,omitempty"`
}

// AfterSync asks for the folder to be copied back, by the host that has it. Delete deletes files there that were
// deleted in the box; Failed copies back the work of a run that did not complete, too.
type AfterSync struct {
	Delete bool `json:"delete"`
	Failed bool `json:"failed"`
}

// SetupStep is a step of making a box, when it has ended. For StepWait it is the step that lasts, and how long it has
// lasted. It belongs to a run, or to a command (Exec) for which the box is made.
type SetupStep struct {
	Signal
	ExecID     string `json:"execId,omitempty"`
	Name       string `json:"name"`
	DurationMs int64  `json:"durationMs"`
	Error      string `json:"error,omitempty"`
}

// SetupType returns the type of a step's signal.
func SetupType(step string) string { return prefixSetup + step }

// IsSetup reports whether a payload's type is that of a step of making a box.
func IsSetup(typ string) bool { return strings.HasPrefix(typ, prefixSetup) }

// Pushed is the result of pushing a run's work. The newest one of a run counts.
type Pushed struct {
	Signal
	Pushed  bool   `json:"pushed"`
	Nothing bool   `json:"nothing,omitempty"` // the run has made no commit and no change: there is nothing to push
	Branch  string `json:"branch,omitempty"`
	Commit  string `json:"commit,omitempty"`
	PRURL   string `json:"prUrl,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Synced is the result of copying a run's work back. The newest one of a run counts.
type Synced struct {
	Signal
	Copied    int      `json:"copied"`
	Bytes     int64    `json:"bytes,omitempty"` // of the copied files
	Conflicts []string `json:"conflicts"`       // paths that changed on both sides: the box's version is NAME.box
	Deleted   int      `json:"deleted"`
	Skipped   []string `json:"skipped,omitempty"` // paths that the box changed and that never come back, as hooks of git
	// Stored are commits of the box that a repository here could not follow.
	Stored []Stored `json:"stored,omitempty"`
	Error  string   `json:"error,omitempty"`
}

// Stored is a commit of the box that is in a repository of the host by a name of its own.
type Stored struct {
	Path   string `json:"path,omitempty"` // of the repository, below the folder; "" for the folder itself
	Ref    string `json:"ref"`            // refs/arbe/<thread>, or below refs/arbe/<thread>.refs/
	Of     string `json:"of"`             // where the box has it: HEAD, a ref or stash
	Commit string `json:"commit"`         // or another object, as an annotated tag
	Reason string `json:"reason"`         // why the repository's own HEAD or ref stays
}

// SandboxKept is why the box of a run that has ended is kept, and until when (RFC 3339, the server's clock).
type SandboxKept struct {
	Signal
	Sandbox Sandbox `json:"sandbox"`
	Reason  string  `json:"reason"`
	Until   string  `json:"until"`
}

// SandboxReleased is on each thread that used a box, before the box is deleted.
type SandboxReleased struct {
	Type    string  `json:"type"`
	Sandbox Sandbox `json:"sandbox"`
	Reason  string  `json:"reason"`
}

// ReleasedID returns the id of a box's SandboxReleased: a box is released once.
func ReleasedID(box Sandbox) string {
	sum := sha256.Sum256([]byte(box.Provider + ":" + box.Ref))
	return "sandbox." + hex.EncodeToString(sum[:6]) + ".released"
}

// SandboxResumed is on each thread of a box that was replaced. Both are ids of rows.
type SandboxResumed struct {
	Type    string `json:"type"`
	Sandbox string `json:"sandbox"` // the new one
	From    string `json:"from"`    // the dead one
}
