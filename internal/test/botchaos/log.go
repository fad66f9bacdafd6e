package botchaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// trigger is an entry that bots may react to.
type trigger struct {
	id, author, text string
	depth            int
	root             *thread.Root
	decided          *thread.Decided
}

// reaction is a reaction as the log has it.
type reaction struct {
	id, bot string
	begun   thread.Begun
	claim   int
	holder  string    // its instance
	signed  time.Time // when that one last gave a sign of life
	free    bool      // it has let go
	idle    int       // claims since the newest progress
	rounds  []round
	held    []int // by round: hosts that held it then
	end     *thread.ReactionFinished
	endAt   int // place in the log
}

// round is a reply of the model.
type round struct {
	calls, results []string // ids
	tools, names   []string // of the calls, and of what they make
	made           []bool   // which of them have
	text           string
	final          bool
	at             int // place in the log
}

// taking is a claim on a reaction that another host held and had not released.
type taking struct {
	reaction, from string // the holder's instance
	silent         time.Duration
}

// record is the fold of a thread's log. What is forged or out of order is a fault.
type record struct {
	Result
	faults    []string
	triggers  []*trigger
	reactions []*reaction
	takings   []taking
	deltas    []thread.Entry
	cancelled map[string]bool // reactions that somebody asked to end
	released  int
	void      int // rounds with calls, and results, of a host that does not know yet that the reaction has ended
}

func read(r Result) *record {
	l := &record{Result: r, cancelled: map[string]bool{}}
	for at, e := range r.Entries {
		f, err := thread.Scan(e.Payload)
		if err != nil {
			l.fault("%s is not understood: %v", e.ID, err)
			continue
		}
		switch f.Type {
		case thread.TypeChat:
			l.chat(e)
		case thread.TypeDecided:
			l.decided(e, parse[thread.Decided](l, e))
		case thread.TypeReactionClaimed:
			l.claimed(e, parse[thread.ReactionClaimed](l, e))
		case thread.TypeReactionAlive:
			l.alive(e, parse[thread.ReactionAlive](l, e))
		case thread.TypeDelta:
			l.delta(e, parse[thread.Delta](l, e))
		case thread.TypeRound:
			l.round(e, parse[thread.Round](l, e), at)
		case thread.TypeResult:
			l.result(e, parse[thread.CallResult](l, e))
		case thread.TypeReactionCancel:
			l.cancelled[parse[thread.ReactionCancel](l, e).Reaction] = true
		case thread.TypeReactionFinished:
			l.finished(e, parse[thread.ReactionFinished](l, e), at)
		case thread.TypeExecStarted, thread.TypeExecRunning, thread.TypeExecOutput, thread.TypeExecFinished,
			thread.TypeExecCancel, thread.TypeAgentSpawn, thread.TypeSandbox:
			// of calls, whose effects are counted
		default:
			if !thread.IsSetup(f.Type) { // of the box of commands
				l.fault("%s is a %s", e.ID, f.Type)
			}
		}
	}
	return l
}

func (l *record) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

func parse[T any](l *record, e thread.Entry) (p T) {
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		l.fault("%s is not understood: %v", e.ID, err)
	}
	return p
}

// is checks an entry's id and author.
func (l *record) is(e thread.Entry, id, author string) {
	if e.ID != id {
		l.fault("%s has the id of something else: want %s", e.ID, id)
	}
	if e.AuthorID != author {
		l.fault("%s is of %q, want %q", e.ID, e.AuthorID, author)
	}
}

func (l *record) reaction(id string) *reaction {
	i := slices.IndexFunc(l.reactions, func(x *reaction) bool { return x.id == id })
	if i < 0 {
		return nil
	}
	return l.reactions[i]
}

func (l *record) trigger(id string) *trigger {
	i := slices.IndexFunc(l.triggers, func(t *trigger) bool { return t.id == id })
	if i < 0 {
		return nil
	}
	return l.triggers[i]
}

func (l *record) chat(e thread.Entry) {
	if e.Received().Before(l.Since) {
		return
	}
	p := parse[thread.Chat](l, e)
	t := &trigger{id: e.ID, author: e.AuthorID, text: p.Text, depth: 1}
	if slices.Contains(l.People, e.AuthorID) {
		t.depth, t.root = 0, &thread.Root{AuthorID: e.AuthorID, ThreadID: l.Thread, EntryID: e.ID}
	}
	l.triggers = append(l.triggers, t)
}

func (l *record) decided(e thread.Entry, p thread.Decided) {
	l.is(e, thread.DecidedID(p.Trigger), "")
	t := l.trigger(p.Trigger)
	switch {
	case t == nil:
		l.fault("%s decides on %s, which is not there", e.ID, p.Trigger)
	case t.decided != nil:
		l.fault("%s is decided twice", p.Trigger)
	default:
		t.decided = &p
	}
}

func (l *record) claimed(e thread.Entry, p thread.ReactionClaimed) {
	l.is(e, thread.ReactionClaimID(p.Reaction, p.Claim), p.AgentID)
	x := l.reaction(p.Reaction)
	if p.Begun != nil {
		l.begun(e, p)
		return
	}
	switch {
	case x == nil:
		l.fault("%s belongs to no reaction", e.ID)
		return
	case x.end != nil: // its host has lost the race with the end
		return
	case p.Claim != x.claim+1 || p.AgentID != x.bot:
		l.fault("%s follows claim %d of %s", e.ID, x.claim, x.bot)
	}
	if x.free {
		l.released++
		x.idle = 0
	} else {
		l.takings = append(l.takings, taking{x.id, x.holder, e.Received().Sub(x.signed)})
	}
	x.claim, x.holder, x.signed, x.free = p.Claim, p.Instance, e.Received(), false
	x.idle++
	x.held[len(x.held)-1]++
}

// begun begins a reaction.
func (l *record) begun(e thread.Entry, p thread.ReactionClaimed) {
	n := 0
	for _, x := range l.reactions {
		if x.bot != p.AgentID {
			continue
		}
		if n++; x.end == nil {
			l.fault("%s and %s of one bot are open", x.id, p.Reaction)
		}
	}
	if want := thread.ReactionID(l.Thread, p.AgentID, n); p.Reaction != want || p.Claim != 0 {
		l.fault("%s has the id of something else: want %s", e.ID, thread.ReactionClaimID(want, 0))
	}
	if slices.ContainsFunc(l.reactions, func(x *reaction) bool { return x.id == p.Reaction }) {
		l.fault("%s begins twice", p.Reaction)
		return
	}
	l.reactions = append(l.reactions, &reaction{
		id: p.Reaction, bot: p.AgentID, begun: *p.Begun, holder: p.Instance, signed: e.Received(), idle: 1,
		held: []int{1},
	})
}

func (l *record) alive(e thread.Entry, p thread.ReactionAlive) {
	x := l.reaction(p.Reaction)
	if x == nil {
		l.fault("%s belongs to no reaction", e.ID)
		return
	}
	if !strings.HasPrefix(e.ID, fmt.Sprintf("%s.alive.%d.", p.Reaction, p.Claim)) || e.AuthorID != x.bot {
		l.fault("%s of %q is a forged sign of life", e.ID, e.AuthorID)
	}
	if p.Claim == x.claim {
		x.signed, x.free = e.Received(), p.Released
	}
}

func (l *record) delta(e thread.Entry, p thread.Delta) {
	x := l.reaction(p.Reaction.ID)
	if x == nil || !strings.HasPrefix(e.ID, thread.RoundID(x.id, p.Reaction.Round)+".") || e.AuthorID != x.bot ||
		p.Reaction.Depth != x.begun.Depth {
		l.fault("%s of %q is a forged delta", e.ID, e.AuthorID)
		return
	}
	l.deltas = append(l.deltas, e)
}

func (l *record) round(e thread.Entry, p thread.Round, at int) {
	x := l.reaction(p.Reaction.ID)
	if x == nil {
		l.fault("%s belongs to no reaction", e.ID)
		return
	}
	r := l.reply(e, p, at)
	switch {
	case x.end == nil:
	case r.final:
		l.fault("%s comes after the end", e.ID)
		return
	default:
		l.is(e, thread.RoundID(x.id, p.Reaction.Round), x.bot)
		l.void++
		return
	}
	l.is(e, thread.RoundID(x.id, len(x.rounds)), x.bot)
	if p.Reaction.Depth != x.begun.Depth || p.Reaction.Round != len(x.rounds) {
		l.fault("%s has round %d at depth %d", e.ID, p.Reaction.Round, p.Reaction.Depth)
	}
	if n := len(x.rounds); n > 0 && slices.Contains(x.rounds[n-1].results, "") {
		l.fault("%s comes before the results of the calls", e.ID)
	}
	if r.final {
		if !slices.Equal(p.Chats, x.begun.Chats) {
			l.fault("%s answers %v, and was to answer %v", e.ID, p.Chats, x.begun.Chats)
		}
		l.triggers = append(l.triggers, &trigger{
			id: e.ID, author: x.bot, text: r.text, depth: x.begun.Depth + 1, root: x.begun.Root,
		})
	}
	x.rounds, x.held = append(x.rounds, r), append(x.held, 1)
	x.signed, x.idle = e.Received(), 0
}

// reply returns a round.
func (l *record) reply(e thread.Entry, p thread.Round, at int) round {
	var m struct {
		Content []struct {
			Type, Text, ID, Name string
			Arguments            json.RawMessage
		}
	}
	if err := json.Unmarshal(p.Message, &m); err != nil {
		l.fault("%s is not understood: %v", e.ID, err)
	}
	r := round{at: at}
	for _, part := range m.Content {
		r.text += part.Text
		if part.Type == "toolCall" {
			r.calls, r.tools = append(r.calls, part.ID), append(r.tools, part.Name)
			r.names = append(r.names, Name.FindString(string(part.Arguments)))
		}
	}
	r.results, r.made, r.final = make([]string, len(r.calls)), make([]bool, len(r.calls)), len(r.calls) == 0
	return r
}

func (l *record) result(e thread.Entry, p thread.CallResult) {
	x := l.reaction(p.Reaction.ID)
	if x != nil && x.end != nil {
		l.void++
		return
	}
	if x == nil {
		l.fault("%s belongs to no reaction", e.ID)
		return
	}
	n := len(x.rounds) - 1
	if n < 0 || p.Reaction.Round != n {
		l.fault("%s is the result of no call", e.ID)
		return
	}
	i := slices.Index(x.rounds[n].calls, p.ToolCallID)
	if i < 0 || x.rounds[n].results[i] != "" {
		l.fault("%s is the result of no call", e.ID)
		return
	}
	l.is(e, thread.CallResultID(x.id, n, i), x.bot)
	x.rounds[n].results[i], x.rounds[n].made[i] = e.ID, !p.IsError
	x.signed, x.idle = e.Received(), 0
}

func (l *record) finished(e thread.Entry, p thread.ReactionFinished, at int) {
	x := l.reaction(p.Reaction)
	if x == nil {
		l.fault("%s ends no reaction", e.ID)
		return
	}
	if x.end != nil {
		l.fault("%s has a second end", x.id)
		return
	}
	l.is(e, thread.ReactionEndID(x.id), x.bot)
	if !slices.Equal(p.Chats, x.begun.Chats) {
		l.fault("%s ends with %v, and was to answer %v", x.id, p.Chats, x.begun.Chats)
	}
	x.end, x.endAt = &p, at
}
