package dispatch

import (
	"time"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/thread"
)

// Journal has the entries of an open reaction.
type Journal struct {
	ID  string
	Bot string
	thread.Begun
	At    time.Time // of its first claim
	order int       // place of that in the log

	Claim    int // of its holder
	Instance string
	Rounds   []Round

	// Gated is set by the holder whose gate has let the reaction pass. It is not on the thread: another holder asks
	// again.
	Gated bool

	rest      Used           // by its holder, since the last round
	roots     []*thread.Root // of the triggers that it answers; nil where no human began a chain
	invalid   int            // results in a row about invalid arguments
	cancelled bool
	released  bool // its holder has let go
	last      time.Time
	lease     time.Duration
	idle      int // claims in a row without a round or a result, and without a release
}

// Round is a reply of the model, with its calls in their order. Results has which of them have a result.
type Round struct {
	Calls   []model.Call
	Results []bool
	Used    Used
}

// idleClaims is how many holders in a row may die without a round or a result: a reaction that ends its hosts ends.
const idleClaims = 5

// Crashed reports whether the reaction is given up when its lease is over.
func (j *Journal) Crashed() bool { return j.idle >= idleClaims }

// progress records a round or a result.
func (j *Journal) progress(e thread.Entry) { j.last, j.idle = e.Received(), 0 }

// Last returns when the reaction's newest entry came that shows that somebody works on it, by the server's clock.
func (j *Journal) Last() time.Time { return j.last }

// End returns the entry that ends the reaction now. Its TS is empty.
func (j *Journal) End(outcome, class, message string, now time.Time) thread.Entry {
	calls := 0
	for _, r := range j.Rounds {
		calls += len(r.Calls)
	}
	usage, cost := j.spent().plus(j.rest).wire()
	return entry(thread.ReactionEndID(j.ID), j.Bot, thread.ReactionFinished{
		Type: thread.TypeReactionFinished, Reaction: j.ID, Chats: j.Chats, Outcome: outcome, ErrorClass: class,
		Message: message, Rounds: len(j.Rounds), Calls: calls, Usage: usage, Cost: cost,
		DurationMs: now.Sub(j.At).Milliseconds(),
	})
}

// Do names what a Step does.
type Do int

// The steps.
const (
	DoCalls  Do = iota // run the calls, and append their results
	DoGate             // ask the model whether to answer at all
	DoModel            // call the model, and append the round
	DoFinish           // append the end
)

// Step is a step of a reaction.
type Step struct {
	Do      Do
	Round   int    // of DoCalls and DoModel
	Calls   []int  // of DoCalls: those without a result
	Tools   bool   // of DoModel: false where the caps are reached, and this is the last reply
	Outcome string // of DoFinish
}

// Next returns the next step of a reaction that is open.
func Next(j *Journal, caps Caps, now time.Time) Step {
	n := len(j.Rounds)
	switch {
	case j.cancelled:
		return Step{Do: DoFinish, Outcome: thread.ReactionCancelled}
	case n == 0 && j.Reason == thread.ReasonAmbient && !j.Gated:
		return Step{Do: DoGate}
	}
	var missing []int
	calls := 0
	for _, r := range j.Rounds {
		calls += len(r.Calls)
	}
	if n > 0 {
		for i, has := range j.Rounds[n-1].Results {
			if !has {
				missing = append(missing, i)
			}
		}
	}
	if len(missing) > 0 {
		return Step{Do: DoCalls, Round: n - 1, Calls: missing}
	}
	return Step{
		Do: DoModel, Round: n,
		Tools: n < caps.Rounds && calls < caps.Calls && now.Sub(j.At) < caps.Wall && j.invalid < mostInvalid &&
			j.spent().tokens() < caps.Tokens,
	}
}
