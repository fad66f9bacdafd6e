package rows

import "time"

// BoxStatus is the status of a box's row.
type BoxStatus string

// Statuses of boxes.
const (
	BoxPending BoxStatus = "pending" // its machine is being made
	BoxLive    BoxStatus = "live"
	BoxDead    BoxStatus = "dead" // for good
)

// Box is the row of a box, the handle of a machine. Threads name it; it names none.
type Box struct {
	ID           string
	House        string
	Environment  string
	Provider     string
	Ref          string // the machine's id at the provider; "" while it is not known
	Ephemeral    bool   // made for one run: it goes once no run needs it
	Status       BoxStatus
	PendingUntil time.Time // then a pending one is dead
	CreatedAt    time.Time
	DestroyedAt  *time.Time // of a dead one: its machine is known to be gone; nil: the machine is there, or may be
}

// Hold is a holder's claim to a box.
type Hold struct {
	Holder   string        `json:"holder"`             // unique: a second hold of a holder replaces the first
	ThreadID string        `json:"threadId,omitempty"` // the run's thread
	RunID    string        `json:"runId,omitempty"`    // the run that holds the box, or that the holder works for
	TTL      time.Duration `json:"-"`                  // 0: until the run has ended
	At       time.Time     `json:"-"`                  // start, by the clock of the server or the database
}

// Until returns when a hold with a TTL expires, by the same clock.
func (h Hold) Until() time.Time { return h.At.Add(h.TTL) }

// Expired reports whether the hold's TTL has passed. A hold without a TTL never expires.
func (h Hold) Expired(now time.Time) bool { return h.TTL > 0 && now.Sub(h.At) >= h.TTL }

// UsedBox is a box with what uses it.
type UsedBox struct {
	Box
	HouseName       string
	EnvironmentName string
	Threads         []BoxThread // on it, at most 100: those that run first, then the newest
	ThreadCount     int         // of all threads on it
	Holds           []Hold      // in the order of their start, expired ones left out
}

// BoxThread is a thread on a box.
type BoxThread struct {
	ID     string `json:"id"`
	Status string `json:"status"` // "" where the thread named the box when that died, and no more
	Run    string `json:"-"`      // that has claimed the thread; "" where the row has the run from the log
}

// BoxState is the row of a box as the decision reads it whether the box is gone, or may be released.
type BoxState struct {
	ID  string
	Ref string // its machine's id at the provider; "" while it is not known
	// Threads are those whose rows name the box; of a dead one those that did when it died, too.
	Threads []BoxThread
	Used    bool // runs and commands could use its machine: the row was live
	Dead    bool
	// Condemned is when the row died because its machine was gone or faulty; zero for any other row. Of a dead one it
	// is zero where the machine was not needed, or was never used.
	Condemned time.Time
}

// Place is where the next run or command of a thread goes.
type Place struct {
	House       string      // of the thread
	Environment Environment // of the box; no ID where neither the thread nor its house has one
	Provider    string      // of the box
	Live        bool        // the thread has the box, or one that is being made

	BoxHours int           // of the house; 0 for no limit
	Age      time.Duration // of a live box: since its row was made
}

// Left returns how long a run may last in the box by the hours of the house; false for no limit.
func (p Place) Left() (left time.Duration, limited bool) {
	return time.Duration(p.BoxHours)*time.Hour - p.Age, p.BoxHours > 0
}

// BoxOrder is a request for a thread's box.
type BoxOrder struct {
	Thread      string
	Environment string // of a new box; it outranks the thread's and the house's
	Ephemeral   bool   // a new box is made for one run
	Hold        Hold
	Maker       string // of a new box: the hold's holder, "#", and what is of this call alone

	Claim bool     // the hold's run claims the thread's row, too
	Known []string // with Claim: the runs that the thread's log has. The row of a thread with another one is busy
}

// BoxTurn is a thread's box, held for the caller.
type BoxTurn struct {
	Row     Box
	Make    bool     // the caller makes its machine
	Taken   bool     // with Make: an earlier call for the same holder may have made one
	Notices []Notice // the threads that may not have the signal of this box yet
}

// Notice is a thread that may not have the signal of its new box yet, which replaces the dead one From.
type Notice struct{ Thread, Row, From string }

// MakeTimeout is the time in which the maker of a pending box renews it, five times. After that time without a renewal
// the maker has lost the box: it is dead, and the next caller makes another one.
const MakeTimeout = 45 * time.Second

// Running is the row of a thread that runs.
type Running struct {
	Run     string        // that has claimed it; "" where the row has it from the log
	Since   time.Duration // the age of the claim
	Version time.Time     // changes with the row
}

// ClaimTimeout is the age at which a claim of a run that the log does not have counts as left by a host that died.
const ClaimTimeout = time.Minute

// ClaimedError is returned where the row of a thread is claimed by a run that the thread's log does not have.
type ClaimedError struct{ Thread, Run string }

// Error implements error.
func (e *ClaimedError) Error() string { return "run " + e.Run + " has claimed the thread " + e.Thread }
