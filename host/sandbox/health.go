package sandbox

import "time"

// Health is the state of a box.
type Health int

// The states of a box.
const (
	Unknown Health = iota // no evidence: the box may be live
	Live                  // it runs, and can be looked into
	Asleep                // it exists, and does not run: no process is left in it, or it is about to start or stop
	Frozen                // it exists, and its processes stand still: their silence is no evidence
	Gone                  // it does not exist any more, or has a fault that it can't recover from
)

func (h Health) String() string {
	return [...]string{"unknown", "live", "asleep", "frozen", "gone"}[h]
}

// Exists reports whether the box exists and can be opened.
func (h Health) Exists() bool { return h == Live || h == Asleep || h == Frozen }

// Box is a provider's record of one of its boxes.
type Box struct {
	Ref     Ref               `json:"sandbox"`
	State   string            `json:"state"` // in the provider's words
	Health  Health            `json:"-"`     // Gone also for a box with a fault, which still has to be destroyed
	Going   bool              `json:"-"`     // it is being deleted
	Labels  map[string]string `json:"labels,omitempty"`
	Created time.Time         `json:"created"`
}
