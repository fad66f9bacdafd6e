package resolve

import (
	"context"
	"time"

	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/rows"
)

// Rows are the rows of threads and boxes. Each call is one transaction, and may be repeated.
type Rows interface {
	claims
	makers
	reap.Rows
}

// claims are those of runs to the rows of threads.
type claims interface {
	// Claimed returns the run that has claimed a thread's row, and for how long; "" for none.
	Claimed(ctx context.Context, thread string) (run string, since time.Duration, err error)
	// Ended gives a thread's row the end of a run that has claimed it.
	Ended(ctx context.Context, thread, run, status string) error
}

// makers are the boxes of threads, and who makes them.
type makers interface {
	// Obtain returns the box of a thread. It returns a *rows.ClaimedError where a run that is not in Known has the row.
	// Of several calls for one holder the latest makes a pending box: what the others report of it is refused.
	Obtain(ctx context.Context, o rows.BoxOrder) (rows.BoxTurn, error)
	pending
	Notes
}

// pending are boxes that are being made. Renew and Ready return lease.ErrReleased where the box is dead, because its
// maker was too slow, or another call makes it.
type pending interface {
	// Renew gives the maker of a pending box more time, and notes its machine; ref is "" while there is none.
	Renew(ctx context.Context, row, maker, ref string) error
	// Ready makes a pending box live.
	Ready(ctx context.Context, row, maker, ref string) error
	// GiveUp declares a pending box dead that this maker makes. It returns the row as it is then, and whether this is
	// the row's maker. A box that is live stays so.
	GiveUp(ctx context.Context, row, maker string) (now rows.Box, mine bool, err error)
}

// Notes are the threads that may not have the signal of their new box.
type Notes interface {
	// Noted notes that the log of a thread has the signal.
	Noted(ctx context.Context, n rows.Notice) error
}
