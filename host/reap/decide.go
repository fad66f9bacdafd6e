package reap

import (
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// Purpose is the question that a decision answers.
type Purpose int

// The purposes.
const (
	Sweep   Purpose = iota // a reconciler: is the box needed?
	Replace                // a caller that can't use the box: may its thread get another one?
	Remove                 // a person removes the box: would anything be lost?
)

// Answer is the provider's answer about a box.
type Answer int

// The answers.
const (
	Unsure Answer = iota // none, or answers that contradict each other
	There
	Faulty // the box has an error that it can't recover from
	Gone
)

// Facts is all that a decision about a box depends on.
type Facts struct {
	For    Purpose
	Answer Answer
	Why    string // the provider's words
	// Released is set if the release is on record: nobody can hold the box any more.
	Released bool
	// Stray is set if the box's row has another machine: this one was made for it, and never used.
	Stray bool
	// Ephemeral is the box's label: it may be released.
	Ephemeral bool
	Uses      []Use
	Needs     []Need // one for each thread whose runs used the box, and one of the box itself where there is none

	GoneAfter, ReapAfter time.Duration
	Threads              []string // that have the box, and a log
}

// UseKind is the kind of a Use.
type UseKind string

// The kinds.
const (
	UseRun     UseKind = "run"
	UseCommand UseKind = "command"
	UseHold    UseKind = "hold"   // of a host, for a time
	UseLaunch  UseKind = "launch" // a run has claimed a thread's row, and is not on the log
)

// Use is somebody who uses a box, or is about to.
type Use struct {
	Kind    UseKind       `json:"kind"`
	Thread  string        `json:"threadId,omitempty"`
	ID      string        `json:"id"` // of the run or the command; of a hold the holder
	Silence time.Duration `json:"-"`  // of a run or a command that has not begun: since its newest entry
	Until   time.Time     `json:"-"`  // of a hold
	Who     string        `json:"-"`  // of a hold: its holder in words
	// Opens is set for who has not the box yet: it will find out that the box is gone.
	Opens bool `json:"-"`
	Begun bool `json:"-"` // of a command: its supervisor has posted
}

// HoldOf returns a hold of a host as a use.
func HoldOf(h rows.Hold) Use {
	return Use{
		Kind: UseHold, Thread: h.ThreadID, ID: h.Holder, Who: lease.Who(h), Until: h.Until(), Opens: lease.Opens(h),
	}
}

func (u Use) String() string {
	switch u.Kind {
	case UseRun:
		return fmt.Sprintf("run %s of thread %s is open, its newest entry %v old", u.ID, u.Thread, seconds(u.Silence))
	case UseCommand:
		return fmt.Sprintf("command %s of thread %s is open", u.ID, u.Thread)
	case UseHold:
		return fmt.Sprintf("held by %s until %s", u.Who, thread.Stamp(u.Until))
	}
	return fmt.Sprintf("thread %s is being launched in it", u.Thread)
}

func seconds(d time.Duration) time.Duration { return max(d, 0).Round(time.Second) }

// lives reports whether a use shows life in a box that its provider calls gone. A command posts nothing while it prints
// nothing, so it counts until it has its end.
func (u Use) lives(goneAfter time.Duration) bool {
	switch {
	case u.Opens:
		return false
	case u.Kind == UseRun, u.Kind == UseCommand && !u.Begun:
		return u.Silence < goneAfter
	}
	return true
}

// Need is one thread's need for a box, by the newest run of the thread in it.
type Need struct {
	Thread, Run string // "" where no run used the box
	Keep        bool   // the run's launch keeps it
	Ended       time.Time
	Since       time.Duration // since then
	Runner      Life          // Dead where the runner itself has posted the end
	Wanted      string        // pending work that the launch asked for; "" for none
	Unsaved     string        // work that exists in the box only, or why that is unknown; "" for none

	run thread.Run // the newest one
	ask bool       // the provider has to be asked for its runner, which may be alive
}

// Decision is an action on a box. Where several threads need different ones, the smallest counts.
type Decision int

// The decisions.
const (
	Stay    Decision = iota // leave it for good
	Wait                    // decide later
	Keep                    // keep it for its work until Until
	Condemn                 // its row is dead, and nothing is deleted
	Release                 // delete it
)

func (d Decision) String() string {
	return [...]string{"stay", "wait", "keep", "condemn", "delete"}[d]
}

// Verdict is a decision about a box.
type Verdict struct {
	What    Decision
	Why     string
	Against []string // of Wait at a removal: all that stands against it
	Uses    []Use    // of Wait at a removal: who uses the box
	Held    *Use     // of Wait: the hold that it waits for; nil for none
	Threads []string // that have the box

	Thread, Run string    // whose need decided; "" for none
	Until       time.Time // of Keep
	New         bool      // of Keep: nobody has posted it before
}

// Decide decides about a box. The first match counts.
//
//	                                                        Sweep    Replace  Remove
//	its release is on record                                Release  Release  Release
//	its row has another machine                             Release  Release  Release
//	the provider does not answer, or contradicts itself     Wait     Wait     Wait
//	gone, or faulty for Replace:
//	  somebody holds it, or has shown life in it            Wait     Wait     Wait
//	  else                                                  Condemn  Condemn  Condemn
//	it is there                                                      Stay
//	it is kept by hand                                      Stay
//	a run or a command in it is open, or somebody holds it  Wait              Wait
//	its runner is alive, or may be                          Wait              Wait
//	older than ReapAfter                                    Release
//	work is pending, or unsaved                             Keep              Wait
//	else                                                    Release           Release
func Decide(f Facts) Verdict {
	v := f.decide()
	v.Threads = f.Threads
	return v
}

func (f Facts) decide() Verdict {
	switch gone := f.Answer == Gone || f.Answer == Faulty && f.For == Replace; {
	case f.Released:
		return Verdict{What: Release, Why: "it was given up before"}
	case f.Stray:
		return Verdict{What: Release, Why: "its row has another machine"}
	case f.Answer == Unsure:
		return Verdict{What: Wait, Why: f.Why, Against: []string{f.Why}}
	case gone:
		for _, u := range f.Uses {
			if u.lives(f.GoneAfter) {
				why := "the provider answers " + f.Why + ", but " + u.String()
				return Verdict{What: Wait, Why: why, Against: []string{why}, Uses: []Use{u}, Held: held(u)}
			}
		}
		return Verdict{What: Condemn, Why: "gone: the provider answers " + f.Why}
	case f.For == Replace:
		return Verdict{What: Stay, Why: "the provider answers " + f.Why}
	case f.For == Remove:
		return f.remove()
	}
	v := Verdict{What: Release, Why: "nothing in it is needed"}
	for _, n := range f.Needs {
		if by := f.need(n); by.What < v.What || by.What == v.What && n.Run != "" {
			v = by
		}
	}
	if len(f.Uses) > 0 && v.What > Wait {
		u := f.Uses[0]
		return Verdict{What: Wait, Why: u.String(), Held: held(u)}
	}
	return v
}

// held returns a use that is a hold; nil for any other.
func held(u Use) *Use {
	if u.Kind == UseHold {
		return &u
	}
	return nil
}

// need decides by what one thread needs.
func (f Facts) need(n Need) Verdict {
	v := Verdict{Thread: n.Thread, Run: n.Run}
	switch {
	case !f.Ephemeral || n.Keep:
		v.What, v.Why = Stay, "it is kept until it is removed by hand"
	case n.Runner == Alive:
		v.What, v.Why = Wait, "its runner is alive"
	case n.Runner == LifeUnknown:
		v.What, v.Why = Wait, "its runner may be alive"
	case n.Since >= f.ReapAfter:
		v.What, v.Why = Release, "kept for "+f.ReapAfter.String()
	case n.Wanted != "":
		v.What, v.Why = Keep, n.Wanted
	case n.Unsaved != "":
		v.What, v.Why = Keep, n.Unsaved
	default:
		v.What, v.Why = Release, "nothing in it is needed"
	}
	if v.What == Keep {
		v.Until = n.Ended.Add(f.ReapAfter)
	}
	return v
}

// remove decides about a removal by hand: all that is alive or would be lost stands against it.
func (f Facts) remove() Verdict {
	var against []string
	for _, u := range f.Uses {
		against = append(against, u.String())
	}
	for _, n := range f.Needs {
		if n.Runner != Dead {
			against = append(against, "the runner of run "+n.Run+" of thread "+n.Thread+" may be alive")
		}
		for _, work := range []string{n.Wanted, n.Unsaved} {
			if work != "" {
				against = append(against, work)
			}
		}
	}
	if against != nil {
		return Verdict{What: Wait, Why: against[0], Against: against, Uses: f.Uses}
	}
	return Verdict{What: Release, Why: "removed by hand"}
}

// boxRef returns a box as entries have it.
func boxRef(b sandbox.Ref) thread.Sandbox { return thread.Sandbox{Provider: b.Provider, Ref: b.ID} }
