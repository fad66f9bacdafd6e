package view

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"arbe.0sk.ar/runner/thread"
)

// Reaction is the reaction of a bot that an item is of. The item's Author is the bot.
type Reaction struct {
	ID string
	// Reply is set for the bot's reply. What it wrote and called before that belongs together, in front of the reply.
	Reply bool

	// Of a reply whose reaction has ended, and of a KindEnd.
	Calls    int
	Duration time.Duration // 0 where it is not known
	Tokens   float64       // 0 where they are not known
	Cost     *float64      // US dollars; nil where it is not known
}

// Figures returns what a reply took, "3 calls · 12s · $0.0040", with ? for a cost that is not known; of one without
// calls its cost alone, where it is known.
func (r *Reaction) Figures() string {
	if r == nil {
		return ""
	}
	cost := ""
	switch {
	case r.Cost != nil:
		cost = Dollars(*r.Cost)
	case r.Tokens > 0 && r.Calls > 0:
		cost = "?"
	}
	if r.Calls == 0 {
		return cost
	}
	text, unit := Count(int64(r.Calls), "call"), time.Second
	if r.Duration < 10*time.Second {
		unit = 100 * time.Millisecond
	}
	if r.Duration > 0 {
		text += " · " + r.Duration.Round(unit).String()
	}
	if cost != "" {
		text += " · " + cost
	}
	return text
}

// IsBot reports whether a bot is the item's author, as far as the entry shows it.
func (i Item) IsBot() bool { return i.Reaction != nil || i.From != "" }

// BotName returns what a reader calls the bot with an id: its name, or "bot" and the beginning of its id where the name
// is "". A short id stands as it is.
func BotName(id, name string) string {
	const short = 8
	if name != "" || len(id) <= short {
		return cmp.Or(name, id)
	}
	return "bot " + strings.ToValidUTF8(id[:short], "")
}

// of returns the id of the item's reaction; "" for none.
func (i Item) of() string {
	if i.Reaction == nil {
		return ""
	}
	return i.Reaction.ID
}

// errorClasses are the classes of failed reactions, in words.
var errorClasses = map[string]string{
	"provider_unreachable": "the provider of its model could not be reached",
	"denied":               "the provider refused its key or its model",
	"context":              "the thread is too long for its model",
	"provider_error":       "the provider's answer could not be used",
	"crashed":              "its hosts died again and again",
	"silent":               "its host has posted nothing for too long",
}

// skips are the reasons for which a bot that was named, or would have reacted, was not asked. Of others nothing is
// shown.
var skips = map[string]string{
	thread.ReasonMode:   "it answers nobody here",
	thread.ReasonDepth:  "a chain of 8 replies",
	thread.ReasonCap:    "enough replies of bots until a person writes",
	thread.ReasonBudget: "today's budget is used up",
}

// Skipped returns why a bot was not asked, for a reason of a decision, as "a chain of 8 replies"; "" for a reason of
// which nothing is shown on a thread.
func Skipped(reason string) string { return skips[reason] }

// decided makes the items of a decision: a notice for each bot that was not asked and might be waited for.
func (m *maker) decided() {
	for _, c := range read[thread.Decided](m).Bots {
		if why := skips[c.Reason]; why != "" && c.Decision == thread.DecisionSkip {
			m.notice(Notice{Kind: NoticeSkipped, Bot: c.AgentID, Text: "was not asked: " + why, Reason: c.Reason})
		}
	}
}

// replied returns what the end of a bot's reaction changes: its reply has what all of it took.
func (b *Builder) replied(end Item) []Change {
	if b.reply == nil || b.reply.of() != end.of() {
		return []Change{{Item: end}}
	}
	r := *end.Reaction
	r.Reply = true
	b.reply.Reaction = &r
	return []Change{{*b.reply, true}}
}

// repeats reports whether a notice has once more that bots have replied enough: each further reply brings one for each
// bot, until a person writes.
func (b *Builder) repeats(n Notice) bool {
	capped := n.Kind == NoticeSkipped && n.Reason == thread.ReasonCap
	again := capped && b.capped
	b.capped = b.capped || capped
	return again
}

// finished makes the item of a reaction's end.
func (m *maker) finished() {
	p := read[thread.ReactionFinished](m)
	r := &Reaction{
		ID: p.Reaction, Calls: max(p.Calls, 0), Duration: milliseconds(float64(p.DurationMs)), Cost: p.Cost,
	}
	var u thread.Usage
	if json.Unmarshal(p.Usage, &u) == nil {
		r.Tokens = u.TotalTokens
	}
	why := p.Message
	if why == "" {
		why = errorClasses[p.ErrorClass]
	}
	n := Notice{Kind: NoticeReaction, Bot: m.entry.AuthorID}
	switch p.Outcome {
	case thread.ReactionCancelled:
		n.Text = because("was stopped", why)
	case thread.ReactionFailed, thread.ReactionRefused:
		n.Bad, n.Text = true, because("did not answer", why)
	default:
		m.add(Item{Kind: KindEnd, Author: m.entry.AuthorID, Reaction: r})
		return
	}
	m.add(Item{Kind: KindNotice, Author: m.entry.AuthorID, Notice: &n, Reaction: r})
}

// Bounds of the reactions that a Builder holds: how many, and the bytes of the text of each.
const (
	mostAnswering = 100
	mostComing    = 64 << 10
)

// Answering is a bot's reaction that has not ended, with the text of its present round so far.
type Answering struct {
	ID    string // of the reaction
	Bot   string // id of its author
	Since time.Time
	Text  string   // of the present round, so far
	Tools []string // that the present round calls, by name
	Calls []Item   // of rounds before it, that have no result yet

	ambient bool // it may still find that it need not answer
	claim   int  // of the holder whose text counts
	round   int  // the present one
	runes   int  // characters of Text, with those that are cut off
}

// answering are the reactions that have not ended, the oldest first.
type answering []*Answering

// Answering returns the reactions that have not ended, the oldest first, but for one that may not answer at all.
func (b *Builder) Answering() (all []Answering) {
	for _, a := range b.answering {
		if !a.ambient {
			one := *a
			one.Calls = b.running(a.ID)
			all = append(all, one)
		}
	}
	return all
}

// add takes an entry. Of the deltas those of the highest claim count, from the last one that begins anew.
func (all *answering) add(e thread.Entry) {
	id, rest, ok := strings.Cut(e.ID, ".")
	if !ok || !strings.HasPrefix(id, "x_") {
		return
	}
	switch typ := thread.TypeOf(e.Payload); typ {
	case thread.TypeReactionClaimed:
		var p thread.ReactionClaimed
		if json.Unmarshal(e.Payload, &p) == nil {
			a := all.get(id, e)
			a.ambient = a.ambient || p.Begun != nil && p.Reason == thread.ReasonAmbient
		}
	case thread.TypeDelta:
		var p thread.Delta
		var n, claim int
		if json.Unmarshal(e.Payload, &p) == nil && places(rest, &n, &claim) {
			all.get(id, e).delta(n, claim, p)
		}
	case thread.TypeRound:
		n, err := strconv.Atoi(rest)
		if a := all.get(id, e); err == nil && n >= a.round {
			a.begin(n+1, a.claim)
		}
	case thread.TypeReactionFinished:
		*all = slices.DeleteFunc(*all, func(a *Answering) bool { return a.ID == id })
	}
}

// places reads the round and the claim in a delta's id, behind the reaction: <n>.<k>.d.<i>.
func places(rest string, n, claim *int) bool {
	parts := strings.Split(rest, ".")
	if len(parts) != 4 || parts[2] != "d" {
		return false
	}
	var errN, errK error
	*n, errN = strconv.Atoi(parts[0])
	*claim, errK = strconv.Atoi(parts[1])
	return errN == nil && errK == nil
}

// get returns a reaction, which begins with an entry where it is not known.
func (all *answering) get(id string, e thread.Entry) *Answering {
	for _, a := range *all {
		if a.ID == id {
			return a
		}
	}
	if len(*all) == mostAnswering {
		*all = slices.Delete(*all, 0, 1)
	}
	a := &Answering{ID: id, Bot: e.AuthorID, Since: e.Time()}
	*all = append(*all, a)
	return a
}

func (a *Answering) begin(round, claim int) {
	a.ambient, a.round, a.claim, a.Text, a.Tools, a.runes = false, round, claim, "", nil, 0
}

// delta takes a piece of the present round's text. A piece that is missing before it leaves a mark.
func (a *Answering) delta(n, claim int, p thread.Delta) {
	switch {
	case n < a.round, n == a.round && claim < a.claim, p.From < 0:
		return
	case n > a.round, claim > a.claim, p.From == 0:
		a.begin(n, claim)
	case p.From < a.runes:
		return
	}
	a.ambient = false
	if p.From > a.runes {
		a.Text += "…"
	}
	a.runes = p.From + utf8.RuneCountInString(p.Text)
	a.Tools = append(a.Tools, p.Tools...)
	if len(a.Tools) > mostOpen {
		a.Tools = a.Tools[len(a.Tools)-mostOpen:]
	}
	if a.Text += p.Text; len(a.Text) > mostComing {
		a.Text = strings.ToValidUTF8(a.Text[:mostComing], "")
	}
}
