package botchaos

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// Result has all that a schedule leaves.
type Result struct {
	Schedule
	Thread    string
	People    []string       // ids
	Since     time.Time      // chats that the server received before it are answered by nobody
	Entries   []thread.Entry // all of the thread
	IDs       []string       // of the chats' entries, in the order of Posts
	Questions []Question     // that are of this thread

	Made []Effect // what the calls of bots have made; nil where that is not known

	// Struck reports whether the host with an instance was killed, stopped or terminated. Nothing else may cost a host
	// its reaction. nil for none was.
	Struck func(instance string) bool
}

// Tally counts what schedules did.
type Tally struct {
	Chats, Pairs, Joined         int // chats of people; (trigger, bot) to answer; of them, joined ones
	Reactions, Rounds            int
	Taken, Released              int // claims on reactions of silent holders, and on released ones
	Declined, Cancelled, GivenUp int
	Void                         int // rounds and results behind the end of their reaction
	Refused                      int // bots that were not asked: depth, turns, cooldown
	Deepest                      int
	Made                         Made
	Questions, Twice             int // requests to models; those that had been answered, and were asked again
}

// Add adds another one.
func (n *Tally) Add(m Tally) {
	n.Chats, n.Pairs, n.Joined = n.Chats+m.Chats, n.Pairs+m.Pairs, n.Joined+m.Joined
	n.Reactions, n.Rounds = n.Reactions+m.Reactions, n.Rounds+m.Rounds
	n.Taken, n.Released = n.Taken+m.Taken, n.Released+m.Released
	n.Declined, n.Cancelled, n.GivenUp = n.Declined+m.Declined, n.Cancelled+m.Cancelled, n.GivenUp+m.GivenUp
	n.Refused, n.Made = n.Refused+m.Refused, n.Made.plus(m.Made)
	n.Deepest, n.Void = max(n.Deepest, m.Deepest), n.Void+m.Void
	n.Questions, n.Twice = n.Questions+m.Questions, n.Twice+m.Twice
}

// end counts how a reaction ended.
func (n *Tally) end(x *reaction) {
	switch {
	case x.end == nil:
	case x.end.Outcome == thread.ReactionDeclined:
		n.Declined++
	case x.end.Outcome == thread.ReactionCancelled:
		n.Cancelled++
	case x.end.Outcome == thread.ReactionFailed:
		n.GivenUp++
	}
}

// Reacting returns the open reactions, the oldest first.
func (r Result) Reacting() (ids []string) {
	for _, x := range read(r).reactions {
		if x.end == nil {
			ids = append(ids, x.id)
		}
	}
	return ids
}

// Open counts the open ends of a thread: triggers without a decision, bots that have to answer, and reactions
// without an end.
func (r Result) Open() (n int) {
	l := read(r)
	for _, id := range r.IDs {
		if l.trigger(id) == nil {
			n++
		}
	}
	answered := l.answered()
	for _, t := range l.triggers {
		if t.decided == nil {
			n++
			continue
		}
		for _, c := range t.decided.Bots {
			if c.Decision == thread.DecisionReact && answered[pair{t.id, c.AgentID}] == 0 {
				n++
			}
		}
	}
	for _, x := range l.reactions {
		if x.end == nil {
			n++
		}
	}
	return n
}

// pair is a trigger, and a bot that reacts to it.
type pair struct{ trigger, bot string }

// answered counts the ends that each pair stands in.
func (l *record) answered() map[pair]int {
	n := map[pair]int{}
	for _, x := range l.reactions {
		if x.end != nil {
			for _, id := range x.end.Chats {
				n[pair{id, x.bot}]++
			}
		}
	}
	return n
}

// Check returns the faults: a chat that is missing, a bot that was named and not asked or the other way round, one
// that was to answer and has not, or twice; two open reactions of a bot, one without an end or with two; a forged id or
// author; a reply that no model has made, or that is there twice; a reaction that was taken from a live host; more
// requests to a model than its hosts explain; a call with no effect, or with two, and an effect of no call.
func (r Result) Check() (wrong []string, n Tally) {
	l := read(r)
	for i, id := range r.IDs {
		if t := l.trigger(id); t == nil {
			l.fault("chat %d (%s) is not on the thread", i, id)
		} else if t.text != r.Posts[i].Text {
			l.fault("chat %d (%s) has another text", i, id)
		}
	}
	for _, t := range l.triggers {
		r.checkTrigger(l, t, &n)
	}
	r.checkPairs(l)
	texts := map[string]bool{}
	for _, x := range l.reactions {
		l.checkChats(x)
		r.checkRounds(l, x, texts)
		l.checkEnd(x)
		n.Joined += len(x.begun.Chats) - 1
		n.Rounds += len(x.rounds)
		n.Deepest = max(n.Deepest, x.begun.Depth)
		n.end(x)
	}
	r.checkDeltas(l)
	n.Made = r.checkMade(l)
	for _, t := range l.takings {
		if r.Struck == nil || !r.Struck(t.from) {
			l.fault("%s was taken from %s, to which nothing had happened, after %v", t.reaction, t.from,
				t.silent.Round(time.Millisecond))
		}
	}
	n.Twice = r.checkQuestions(l)
	n.Chats, n.Reactions, n.Questions = len(r.IDs), len(l.reactions), len(r.Questions)
	n.Taken, n.Released, n.Void = len(l.takings), l.released, l.void
	return l.faults, n
}

// checkTrigger checks the decision on a trigger.
func (r Result) checkTrigger(l *record, t *trigger, n *Tally) {
	if t.decided == nil {
		l.fault("%s is not decided", t.id)
		return
	}
	if t.decided.Depth != t.depth || !equal(t.decided.Root, t.root) {
		l.fault("%s is decided at depth %d with root %v, want %d, %v", t.id, t.decided.Depth, t.decided.Root, t.depth,
			t.root)
	}
	names, choices := r.names(t), l.choices(t)
	for _, b := range r.Bots {
		c, listed := choices[b.ID]
		delete(choices, b.ID)
		want := t.wants(b, names)
		switch {
		case want == "" && listed:
			l.fault("%s does not concern %s, which is listed: %s %s", t.id, b.Name, c.Decision, c.Reason)
		case want == "":
		case !listed:
			l.fault("%s should have asked %s (%s), which is not listed", t.id, b.Name, want)
		case c.Decision == thread.DecisionReact && c.Reason == want && t.depth < maxDepth:
			n.Pairs++
		case c.Decision == thread.DecisionSkip && refuses(t, c.Reason, want):
			n.Refused++
		default:
			l.fault("%s should have asked %s (%s), and has %s %s at depth %d", t.id, b.Name, want, c.Decision, c.Reason,
				t.depth)
		}
	}
	for id := range choices {
		l.fault("%s is decided for %s, which is no bot of the house", t.id, id)
	}
}

// choices returns the decisions on a trigger by bot.
func (l *record) choices(t *trigger) map[string]thread.Choice {
	all := map[string]thread.Choice{}
	for _, c := range t.decided.Bots {
		if _, twice := all[c.AgentID]; twice {
			l.fault("%s is decided twice for %s", t.id, c.AgentID)
		}
		all[c.AgentID] = c
	}
	return all
}

// wants returns the reason for which a bot reacts to a trigger that names some bots; "" where it does not.
func (t *trigger) wants(b Bot, names []string) string {
	switch {
	case b.ID == t.author:
	case slices.Contains(names, b.Name):
		return thread.ReasonMention
	case b.Mode == rows.ModeAlways:
		return thread.ReasonAlways
	case b.Mode == rows.ModeAmbient:
		return thread.ReasonAmbient
	}
	return ""
}

// maxDepth is the depth from which on no bot reacts.
const maxDepth = 8

// refuses reports whether a bot that would react for a reason may be refused for another.
func refuses(t *trigger, why, reason string) bool {
	switch why {
	case thread.ReasonDepth:
		return t.depth >= maxDepth
	case thread.ReasonCap:
		return t.depth > 0
	case thread.ReasonCooldown:
		return t.depth > 0 && reason == thread.ReasonAlways
	}
	return false
}

// names returns the names of the bots that a trigger names.
func (r Result) names(t *trigger) (names []string) {
	if i := slices.Index(r.IDs, t.id); i >= 0 {
		return r.Posts[i].Names
	}
	for _, b := range r.Bots {
		if strings.Contains(t.text+" ", "@"+b.Name+" ") {
			names = append(names, b.Name)
		}
	}
	return names
}

// checkPairs checks that each bot that reacts has answered once, and no other.
func (r Result) checkPairs(l *record) {
	answered := l.answered()
	for _, t := range l.triggers {
		if t.decided == nil {
			continue
		}
		for _, c := range t.decided.Bots {
			p := pair{t.id, c.AgentID}
			if n := answered[p]; c.Decision == thread.DecisionReact && n != 1 {
				l.fault("%s stands in %d ends of %s", t.id, n, c.AgentID)
			}
			if c.Decision == thread.DecisionReact {
				delete(answered, p)
			}
		}
	}
	for p := range answered {
		l.fault("%s has answered %s, and was not asked", p.bot, p.trigger)
	}
}

// checkChats checks what a reaction answers.
func (l *record) checkChats(x *reaction) {
	for i, id := range x.begun.Chats {
		t := l.trigger(id)
		switch {
		case t == nil:
			l.fault("%s answers %s, which is not there", x.id, id)
		case t.depth != x.begun.Depth || t.depth > 0 && len(x.begun.Chats) > 1:
			l.fault("%s mixes chains: %v", x.id, x.begun.Chats)
		case i == 0 && !equal(t.root, x.begun.Root):
			l.fault("%s has root %v, want %v", x.id, x.begun.Root, t.root)
		}
	}
}

// checkRounds checks that each round is a reply of the model, and no other has it. texts are those of all rounds.
func (r Result) checkRounds(l *record, x *reaction, texts map[string]bool) {
	for i, rd := range x.rounds {
		if texts[rd.text] && rd.text != "" {
			l.fault("round %d of %s has the text of another one", i, x.id)
		}
		texts[rd.text] = true
		if !slices.ContainsFunc(r.asked(x, i, false), func(q Question) bool { return q.Whole && q.Text == rd.text }) {
			l.fault("round %d of %s is no reply of the model", i, x.id)
		}
	}
}

// checkEnd checks how a reaction ended.
func (l *record) checkEnd(x *reaction) {
	finals := 0
	for _, rd := range x.rounds {
		if rd.final {
			finals++
		}
	}
	if x.end == nil {
		l.fault("%s has no end", x.id)
		return
	}
	good := false
	switch x.end.Outcome {
	case thread.ReactionAnswered:
		last := len(x.rounds) - 1
		if finals != 1 || !x.rounds[last].final || x.rounds[last].at != x.endAt-1 {
			l.fault("%s is answered with %d final replies", x.id, finals)
		}
		return
	case thread.ReactionDeclined:
		good = x.begun.Reason == thread.ReasonAmbient && len(x.rounds) == 0
	case thread.ReactionFailed:
		good = x.end.ErrorClass == "crashed" && x.idle >= idleClaims
	case thread.ReactionCancelled:
		good = l.cancelled[x.id]
	}
	if !good || finals > 0 {
		l.fault("%s is %s %s with %d final replies: %s", x.id, x.end.Outcome, x.end.ErrorClass, finals, x.end.Message)
	}
}

// idleClaims is how many holders have to die in a row before a reaction is given up.
const idleClaims = 5

// asked returns the questions to the model in a round of a reaction, or those of its gate.
func (r Result) asked(x *reaction, round int, gate bool) (all []Question) {
	for _, q := range r.Questions {
		if q.Gate == gate && q.Round == round && r.name(x.bot) == q.Bot && slices.Equal(q.Asked, x.begun.Chats) {
			all = append(all, q)
		}
	}
	return all
}

func (r Result) name(bot string) string {
	for _, b := range r.Bots {
		if b.ID == bot {
			return b.Name
		}
	}
	return ""
}

// checkQuestions checks that each host that held a reaction got at most one whole reply in a round, and that the model
// was asked nothing else. It returns how many replies were paid for in vain.
func (r Result) checkQuestions(l *record) (twice int) {
	known := 0
	for _, x := range l.reactions {
		for i, hosts := range x.held {
			for _, gate := range []bool{false, true} {
				all := r.asked(x, i, gate)
				whole := 0
				for _, q := range all {
					if q.Whole {
						whole++
					}
				}
				known += len(all)
				if twice += max(0, whole-1); whole > hosts {
					l.fault("round %d of %s was paid for %d times by %d hosts", i, x.id, whole, hosts)
				}
			}
		}
	}
	if n := len(r.Questions) - known; n > 0 {
		l.fault("%d requests to the model are of no reaction", n)
	}
	return twice
}

// checkDeltas checks that each delta is a piece of what the model has replied in its round.
func (r Result) checkDeltas(l *record) {
	for _, e := range l.deltas {
		p := parse[thread.Delta](l, e)
		x := l.reaction(p.Reaction.ID)
		if !slices.ContainsFunc(r.asked(x, p.Reaction.Round, false), func(q Question) bool {
			text := []rune(q.Text)
			return p.From <= len(text) && strings.HasPrefix(string(text[p.From:]), p.Text)
		}) {
			l.fault("%s has a text that the model has not replied", e.ID)
		}
	}
}

func equal(a, b *thread.Root) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}
