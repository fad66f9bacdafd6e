// Package reap decides whether a box is gone, or may be released, and deletes it. Nothing else does.
//
// A launch or a command that can't use its thread's box, a reconciler, arbe sandbox rm, and the maker of a box that it
// gives up: all of them call this package, and none condemns, replaces or deletes a box on its own.
//
// A box is gone if its provider has answered so twice, the provider's list agrees, nobody has a valid hold of the box,
// and neither a run nor a command in it has shown life for GoneAfter. One answer condemns nothing. A box that is gone
// gets a dead row, so that its threads get another box; it is not deleted. If its machine turns up again, the machine
// is decided about like any other, and kept while it may have work in it.
//
// A box is released if nobody needs it. One that was made for a command is needed while a thread on its row is open,
// for ReapAfter from its last command or run on. Its lease (package lease) records the release before anything is
// deleted, and from then on nobody can hold the box. Then each thread that used the box gets a signal, and then the box
// is deleted. Who dies in between leaves a release on record, which the next reconciler completes.
//
// Look gathers facts, Decide is a pure function of them, and Settle, Replace and Remove act on its verdict. A decision
// to release or condemn is made on a state of the lease, and is void if another holder comes before it is recorded.
package reap

import (
	"context"
	"errors"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Provider is a decision's access to a provider of boxes: a part of sandbox.Provider.
type Provider interface {
	prober
	inventory
	// Open returns the box with the id, which must be live; sandbox.ErrGone if there is no such box.
	Open(ctx context.Context, id string) (sandbox.Sandbox, error)
}

// prober reports on boxes without starting them or keeping them awake.
type prober interface {
	// Probe returns the state of the box with the id, and why in the provider's words. Only the provider's own answer
	// about this box makes it Gone.
	Probe(ctx context.Context, id string) (h sandbox.Health, why string, err error)
	// Runs reports whether the process is alive in the box; with PID 0, whether the runner of the process's Run is, or,
	// without a Run, any runner. It returns sandbox.ErrFrozen for a box that is frozen, and sandbox.ErrGone for a box
	// that is gone, unless the process can be found without it.
	Runs(ctx context.Context, id string, p sandbox.Process) (bool, error)
}

// inventory is the boxes that a provider has.
type inventory interface {
	// List returns the boxes that have all these labels.
	List(ctx context.Context, labels map[string]string) ([]sandbox.Box, error)
	destroyer
}

// destroyer deletes boxes.
type destroyer interface {
	// Destroy deletes the box with the id. A box that is gone already is no error.
	Destroy(ctx context.Context, id string) error
}

// Rows are the rows of boxes. Each call is one transaction, and may be repeated.
type Rows interface {
	rowReader
	rowWriter
	// Lease returns the lease of a box.
	Lease(row string) lease.Lease
}

type rowReader interface {
	// Row returns a row; false where there is none.
	Row(ctx context.Context, id string) (rows.BoxState, bool, error)
	// BoxAt returns the row of a machine; "" where it has none.
	BoxAt(ctx context.Context, provider, ref string) (row string, err error)
}

type rowWriter interface {
	// Release declares the row of a box dead that nobody needs. It does nothing, and done is false, where the holds are
	// not those that were seen, or a thread runs in the box that is not among the judged ones.
	Release(ctx context.Context, row string, seen []rows.Hold, judged []string) (done bool, err error)
	// Condemn is Release for a box whose machine is gone or faulty.
	Condemn(ctx context.Context, row string, seen []rows.Hold, judged []string) (done bool, err error)
	// Gone notes that the machine of a row does not exist any more: the row is dead.
	Gone(ctx context.Context, row string) error
	// Doubt marks a live row for the next look of a reconciler, with the reason.
	Doubt(ctx context.Context, row, why string) error
}

// Thread is the state of a thread.
type Thread struct {
	Fold *thread.Fold
	Now  time.Time // the server's clock
	// Writable is since when the server's log could be written: no silence begins before.
	Writable time.Time
}

// Silence returns the time since the last entry of a run or a command.
func (t Thread) Silence(last time.Time) time.Duration { return t.Now.Sub(latest(last, t.Writable)) }

// Defaults of a Reaper.
const (
	DefaultGoneAfter = 2 * time.Minute
	DefaultReapAfter = 24 * time.Hour
	DefaultAgain     = 2 * time.Second
)

// Reaper decides about the boxes of one provider. Name, Provider and Client are required; all durations have defaults.
type Reaper struct {
	Name     string // of the provider, as in a sandbox.Ref
	Provider Provider
	// Client returns a client that writes a thread.
	Client func(threadID string) (*client.Client, error)
	Rows   Rows // nil without a database

	// Listed returns a box of the provider's list, which may be out of date; false for none. nil: it lists all boxes.
	Listed func(ctx context.Context, id string) (sandbox.Box, bool, error)
	// Ask runs a question to the provider, and may bound how many there are. It returns ErrDown without asking a
	// provider that does not answer. nil: it asks.
	Ask func(ctx context.Context, question func(ctx context.Context) error) error
	// Read returns the state of a thread as it is now. nil: it reads the thread's signals.
	Read func(ctx context.Context, threadID string) (Thread, error)
	// Unsaved describes work that exists in the box only; "" for none. nil: nothing is looked for.
	Unsaved func(ctx context.Context, box sandbox.Sandbox, b sandbox.Box) (string, error)

	GoneAfter time.Duration // silence of a run whose box is gone
	ReapAfter time.Duration // time that a box with work, or for commands, is kept after its last run or command
	Again     time.Duration // between the two queries of a box that seems gone
	Author    string        // of all entries; "" for none
}

// Box is a box to decide about.
type Box struct {
	sandbox.Box      // as its provider lists it; of one that is not listed the Ref alone
	Listed      bool // by its provider
	Row         string
	// Known is the state of the thread that the box was made for, by its label; nil if unknown. It spares further
	// questions where it shows that the box is needed.
	Known *Thread
}

// ErrDown is returned for a provider that has failed several times in a row.
var ErrDown = errors.New("the provider does not answer")

// ErrNoRows is returned for a box with a row by a host that has no database.
var ErrNoRows = errors.New("it has a row in a database that this host does not use (--database)")
