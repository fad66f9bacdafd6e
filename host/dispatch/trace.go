package dispatch

import (
	"slices"

	"arbe.0sk.ar/runner/thread"
)

// Trace has the decision on one trigger and the reactions to it, folded from the entries behind it. Set Trigger, and
// Add the thread's entries in their order, with or without deltas.
type Trace struct {
	Trigger   string
	Decided   *thread.Decided // nil while no host has decided
	Reactions []Traced        // those that answer the trigger, in the order of their claims
}

// Traced is a reaction that answers the trigger.
type Traced struct {
	ID  string
	Bot string
	thread.Begun

	Claims int // of hosts that have held it
	Rounds []TracedRound
	End    *thread.ReactionFinished // nil while it is open
}

// TracedRound is a round of a reaction.
type TracedRound struct {
	Text  string
	Calls []string // names of the tools
}

// Answer returns the text of the final reply; "" for a reaction without one.
func (r Traced) Answer() string {
	n := len(r.Rounds)
	if n == 0 || r.End == nil || r.End.Outcome != thread.ReactionAnswered {
		return ""
	}
	return r.Rounds[n-1].Text
}

// Add adds the thread's next entry.
func (t *Trace) Add(e thread.Entry) {
	switch thread.TypeOf(e.Payload) {
	case thread.TypeDecided:
		add(e, t.decided)
	case thread.TypeReactionClaimed:
		add(e, t.claimed)
	case thread.TypeRound:
		add(e, t.round)
	case thread.TypeReactionFinished:
		add(e, t.finished)
	}
}

func (t *Trace) decided(_ thread.Entry, p thread.Decided) {
	if p.Trigger == t.Trigger && t.Decided == nil {
		t.Decided = &p
	}
}

func (t *Trace) claimed(_ thread.Entry, p thread.ReactionClaimed) {
	if r := t.Reaction(p.Reaction); r != nil {
		r.Claims = max(r.Claims, p.Claim+1)
	} else if p.Begun != nil && p.Claim == 0 && slices.Contains(p.Chats, t.Trigger) {
		t.Reactions = append(t.Reactions, Traced{ID: p.Reaction, Bot: p.AgentID, Begun: *p.Begun, Claims: 1})
	}
}

func (t *Trace) round(_ thread.Entry, p thread.Round) {
	r := t.Reaction(p.Reaction.ID)
	if r == nil || p.Reaction.Round != len(r.Rounds) {
		return
	}
	round := TracedRound{Text: textOf(p.Message)}
	for _, c := range callsOf(p.Message) {
		round.Calls = append(round.Calls, c.Name)
	}
	r.Rounds = append(r.Rounds, round)
}

func (t *Trace) finished(_ thread.Entry, p thread.ReactionFinished) {
	if r := t.Reaction(p.Reaction); r != nil && r.End == nil {
		r.End = &p
	}
}

// Reaction returns the reaction with an id; nil where none that answers the trigger has it.
func (t *Trace) Reaction(id string) *Traced {
	i := slices.IndexFunc(t.Reactions, func(r Traced) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &t.Reactions[i]
}

// Reacting returns the bots that the decision lets react, without the driver of the thread: its run takes the trigger.
func (t *Trace) Reacting() (bots []string) {
	if t.Decided == nil {
		return nil
	}
	for _, c := range t.Decided.Bots {
		if c.Decision == thread.DecisionReact && c.Reason != thread.ReasonDriver {
			bots = append(bots, c.AgentID)
		}
	}
	return bots
}

// Over reports whether all bots that react have ended their reactions to the trigger.
func (t *Trace) Over() bool {
	if t.Decided == nil {
		return false
	}
	for _, bot := range t.Reacting() {
		if !slices.ContainsFunc(t.Reactions, func(r Traced) bool { return r.Bot == bot && r.End != nil }) {
			return false
		}
	}
	return true
}
