// Package live decides what a live run does next about its agent's input, and remembers what the agent was given.
//
// Next is the decision: a pure function of the State. A Ledger adds up the records of a run's journal: which chats were
// written, accepted and taken in, and which line of the session has which chat. The package does no I/O and reads no
// clock. Package runner acts, and writes the journal.
package live

import "arbe.0sk.ar/runner/thread"

// Chat is a chat that was not written to this agent, or that the agent will not take in as it was written.
type Chat struct {
	ID      string
	Deliver string // one of thread's Deliver constants
	Apart   bool   // harness.Live.Apart
}

// End is how far a run is to its end.
type End int

// The ends.
const (
	Stay   End = iota // the run takes chats
	Finish            // it does what is queued, and ends
	Abort             // it ends now: a turn that is running is interrupted
)

// State is the input of Next. The zero value is an idle agent that is not ready, and nothing to do.
type State struct {
	// Of the agent, from its stdout.
	Ready bool // it takes a message now (harness.Live.Ready)
	Busy  bool // a turn is running
	Open  bool // there are lines to write that open its session

	// Of the pipe to it.
	Filled bool // it has not read all that was written
	Torn   bool // a line that is longer than the pipe was cut off when a worker died
	Closed bool // its input has ended

	// Settling: a turn has ended, and its last lines may not be in the session yet.
	Settling bool
	// Replies is the number of its requests that are not answered.
	Replies int
	// Written: a message is written and neither accepted nor refused.
	Written bool
	// Queued is the number of messages that it has accepted and not taken in. Apart: harness.Live.Apart of one of them.
	Queued int
	Apart  bool
	// Interrupting: an interrupt is written, and the agent has not read it.
	Interrupting bool
	// Interrupted is the id of the chat for which the running turn was interrupted; "" for none.
	Interrupted string

	// Doubt: only a barrier shows whether the agent has had a message, because an earlier worker may have written it,
	// or because there is no record of it.
	Doubt bool
	// Asked and Answered count the barriers written and answered since the doubt began; Rounds is how many are needed.
	Asked, Answered, Rounds int

	// Chats are the chats to write, in the thread's order.
	Chats []Chat
	// End is whether the run ends.
	End End
	// Tail: the thread was read up to its tail after End was set.
	Tail bool
	// Tried: the turn that is running was interrupted because of Abort.
	Tried bool
}

// Do is the kind of an Action.
type Do string

// The kinds of actions.
const (
	Wait      Do = "wait"      // for the agent, the thread or the time
	Open      Do = "open"      // write the lines that open the session
	Reply     Do = "reply"     // answer the agent's oldest request
	Ask       Do = "ask"       // write a barrier
	Resolve   Do = "resolve"   // the barriers are answered: end the doubt
	Put       Do = "put"       // write the chat
	Interrupt Do = "interrupt" // interrupt the turn, for the chat if there is one
	Read      Do = "read"      // read the thread up to its tail
	Close     Do = "close"     // end the agent's input
	Stop      Do = "stop"      // end the agent: its input can't be continued
)

// Action is the next action, and the one of the State's Chats that it is about.
type Action struct {
	Do   Do
	Chat string // its id; "" for none
}

// Next returns what to do next.
//
// A line is written only into an empty pipe. One message is outstanding at a time: the next one is written when it is
// accepted. An interrupt overtakes the chats that are not written. A chat for after the turn waits until the agent is
// idle and has taken in all that it has accepted; chats for the turn overtake it meanwhile. None but an interrupt
// overtakes one that the agent takes in apart.
func Next(s State) Action {
	switch {
	case s.Closed:
		return Action{Do: Wait}
	case s.Torn:
		return Action{Do: Stop}
	case s.End == Abort:
		return abort(s)
	case s.Filled:
		return Action{Do: Wait}
	case s.Replies > 0:
		return Action{Do: Reply}
	case s.Open:
		return Action{Do: Open}
	case s.Doubt:
		return doubt(s)
	case s.Interrupting, s.Written, s.Settling:
		return Action{Do: Wait}
	}
	if a := put(s); a.Do != Wait {
		return a
	}
	if s.End != Finish || len(s.Chats) > 0 || s.Busy || s.Queued > 0 {
		return Action{Do: Wait}
	}
	if !s.Tail {
		return Action{Do: Read}
	}
	return Action{Do: Close}
}

// abort ends the turn and then the input.
func abort(s State) Action {
	switch {
	case !s.Busy:
		return Action{Do: Close}
	case s.Filled || s.Tried:
		return Action{Do: Wait}
	}
	return Action{Do: Interrupt}
}

// doubt asks as many barriers as are needed, one after the other.
func doubt(s State) Action {
	switch {
	case !s.Ready || s.Asked > s.Answered:
		return Action{Do: Wait}
	case s.Answered >= s.Rounds:
		return Action{Do: Resolve}
	}
	return Action{Do: Ask}
}

// put chooses the chat to write.
func put(s State) Action {
	rest := s.Busy || s.Queued > 0
	for _, c := range s.Chats {
		if c.Deliver != thread.DeliverInterrupt {
			continue
		}
		switch {
		case rest && s.Interrupted != c.ID:
			return Action{Interrupt, c.ID}
		case s.Ready:
			return Action{Put, c.ID}
		}
		return Action{Do: Wait}
	}
	for _, c := range s.Chats {
		switch {
		case s.Apart || !s.Ready || c.Apart && rest && c.Deliver != thread.DeliverFollowUp:
			return Action{Do: Wait}
		case c.Deliver != thread.DeliverFollowUp || !rest:
			return Action{Put, c.ID}
		}
	}
	return Action{Do: Wait}
}
