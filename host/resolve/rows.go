package resolve

import (
	"context"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reap"
)

// Row is the row of a box.
type Row struct {
	ID          string
	House       string
	Environment string
	Provider    string
	Ref         string // the machine's id at the provider; "" while it is not known
	Ephemeral   bool   // it goes once no run needs it
	Status      Status
	Destroyed   bool // of a dead one: its machine is known to be gone
}

// Status is a row's status.
type Status string

// Statuses of rows.
const (
	Pending Status = "pending" // its machine is being made
	Live    Status = "live"
	Dead    Status = "dead" // for good
)

// Order is what a caller wants of a thread's box.
type Order struct {
	Thread      string
	Environment string // of a new box; it outranks the thread's and the house's
	Ephemeral   bool   // a new box is made for one run
	Hold        lease.Hold
	Maker       string // of a new box: the hold's holder, "#", and what is of this call alone. Resolver.Box sets it

	Claim bool     // the hold's run claims the thread's row, too
	Known []string // with Claim: the runs that the thread's log has. The row of a thread with another one is busy
}

// Turn is a thread's box, held for the caller.
type Turn struct {
	Row     Row
	Make    bool     // the caller makes its machine
	Taken   bool     // with Make: an earlier call for the same holder may have made one
	Notices []Notice // the threads that may not have the signal of this box yet
}

// Notice is a thread that may not have the signal of its new box yet, which replaces the dead one From.
type Notice struct{ Thread, Row, From string }

// Rows are the rows of threads and boxes. Each call is one transaction, and may be repeated.
type Rows interface {
	// Claimed returns the run that has claimed a thread's row, and for how long; "" for none.
	Claimed(ctx context.Context, thread string) (run string, since time.Duration, err error)
	// Obtain returns the box of a thread. It returns a *ClaimedError where a run that is not in Known has the row. Of
	// several calls for one holder the latest makes a pending box: what the others report of it is refused.
	Obtain(ctx context.Context, o Order) (Turn, error)
	// Noted notes that the logs of threads have the signal of their new box.
	Noted(ctx context.Context, row string, threads []string) error
	// Renew gives the maker of a pending box more time, and notes its machine; ref is "" while there is none.
	Renew(ctx context.Context, row, maker, ref string) error
	// Ready makes a pending box live. Renew and Ready return lease.ErrReleased where the box is dead, because its maker
	// was too slow, or another call makes it.
	Ready(ctx context.Context, row, maker, ref string) error
	// GiveUp declares a pending box dead that this maker makes. It returns the row as it is then, and whether this is
	// the row's maker. A box that is live stays so.
	GiveUp(ctx context.Context, row, maker string) (now Row, mine bool, err error)
	// Ended gives a thread's row the end of a run that has claimed it.
	Ended(ctx context.Context, thread, run, status string) error
	reap.Rows
}

// ClaimedError is returned where the row of a thread is claimed by a run that the thread's log does not have.
type ClaimedError struct{ Thread, Run string }

func (e *ClaimedError) Error() string { return "run " + e.Run + " has claimed the thread " + e.Thread }

// ClaimTimeout is the age at which a claim of a run that the log does not have counts as left by a host that died.
const ClaimTimeout = time.Minute

// Patience is the time in which the maker of a pending box renews it, five times. After that time without a renewal the
// maker has lost the box: it is dead, and the next caller makes another one.
const Patience = 45 * time.Second

// Running is the row of a thread that runs.
type Running struct {
	Run     string        // that has claimed it; "" where the row has it from the log
	Since   time.Duration // the age of the claim
	Version time.Time     // changes with the row
}
