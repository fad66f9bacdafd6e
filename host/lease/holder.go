package lease

import (
	"fmt"
	"os"
	"strings"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/rows"
)

// Kinds of holders of a box. A holder begins with its kind and a colon.
const (
	kindRun     = "run"  // until its thread has its end
	kindCommand = "exec" // the same
	KindOpens   = "opens"
	KindUses    = "using"
	KindAfter   = "after"
	KindWatches = "attached"
)

// kinds are the holders in words.
var kinds = map[string]string{
	KindOpens:   "a launch or a command that opens it",
	KindUses:    "arbe sandbox push or pull",
	KindAfter:   "a reconciler that pushes or copies back",
	KindWatches: "arbe run",
}

// NewHolder returns the name of a holder of a kind: it has this host, the process, and what is of this call alone.
func NewHolder(kind string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "-"
	}
	return fmt.Sprintf("%s:%s/%d/%s", kind, host, os.Getpid(), uuid.NewString())
}

// OfRun returns the hold of a run.
func OfRun(threadID, runID string) rows.Hold {
	return rows.Hold{Holder: kindRun + ":" + threadID + "/" + runID, ThreadID: threadID, RunID: runID}
}

// OfCommand returns the hold of a command.
func OfCommand(threadID, execID string) rows.Hold {
	return rows.Hold{Holder: kindCommand + ":" + threadID + "/" + execID, ThreadID: threadID, RunID: execID}
}

// Opening returns the hold of a host that opens the box of a thread, and starts a command in it.
func Opening(threadID string) rows.Hold {
	return rows.Hold{Holder: NewHolder(KindOpens), ThreadID: threadID, TTL: TTL}
}

// Opens reports whether the holder is about to open the box, and does nothing in it yet.
func Opens(h rows.Hold) bool { return strings.HasPrefix(h.Holder, KindOpens+":") }

// Who returns the holder in words: which command, where, and for which run.
func Who(h rows.Hold) string {
	kind, rest, _ := strings.Cut(h.Holder, ":")
	words, known := kinds[kind]
	if !known {
		return h.Holder
	}
	if host, rest, ok := strings.Cut(rest, "/"); ok {
		pid, _, _ := strings.Cut(rest, "/")
		words += fmt.Sprintf(" on %s (process %s)", host, pid)
	}
	switch {
	case h.RunID != "":
		words += fmt.Sprintf(" for run %s of thread %s", h.RunID, h.ThreadID)
	case h.ThreadID != "":
		words += " for thread " + h.ThreadID
	}
	return words
}
