package view

import (
	"strings"

	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Bounds of the calls and of the chats that a Builder waits for: how many of each, and the bytes of their arguments and
// texts. The oldest ones are forgotten beyond that, and their results and deliveries are items of their own.
const (
	mostOpen      = 1000
	mostOpenBytes = 16 << 20
)

// Builder makes items from a thread's entries. Add them in the thread's order, from any one on. It keeps the calls
// that have no result yet, the chats that are not delivered yet, the newest verdict, and nothing else. The zero value
// is ready. It is not safe for concurrent use.
type Builder struct {
	Harnesses session.List // those whose lines may be on the thread; nil for session's list

	chats   inbox
	open    []Item // calls without a result, the oldest first
	bytes   int    // of them
	verdict *Item  // the newest
	harness string // of the newest run
}

// Add returns what the thread's next entry changes: nothing for an entry that is not shown.
func (b *Builder) Add(e thread.Entry) []Change {
	var changes []Change
	for _, i := range Items(e, b.Harnesses) {
		changes = append(changes, b.put(i)...)
	}
	return changes
}

// Running returns the calls of the main conversation that have no result yet, the oldest first.
func (b *Builder) Running() []Item {
	var calls []Item
	for _, i := range b.open {
		if i.Subagent == nil && i.Call.State == Running {
			calls = append(calls, i)
		}
	}
	return calls
}

// Undelivered returns how many chats no agent has had.
func (b *Builder) Undelivered() int { return len(b.chats.open) }

// Join returns the items of two successive pieces of a thread as one list: calls with results that were in the newer
// piece, verdicts whole. Neither list is changed.
func Join(older, newer []Item) []Item {
	var b Builder
	var l List
	for _, items := range [][]Item{older, newer} {
		for _, i := range items {
			for _, c := range b.put(i) {
				l.Change(c)
			}
		}
	}
	return l.Items
}

// List is a list of items that Changes are applied to.
type List struct {
	Items []Item
	index map[string]int
}

// Change applies a change.
func (l *List) Change(c Change) {
	if at, ok := l.index[c.Item.ID]; ok && c.Replaces {
		l.Items[at] = c.Item
		return
	}
	if l.index == nil {
		l.index = map[string]int{}
	}
	l.index[c.Item.ID] = len(l.Items)
	l.Items = append(l.Items, c.Item)
}

// put returns what the next item changes. The item may have been changed before, in another piece.
func (b *Builder) put(i Item) []Change {
	var changes []Change
	if i.answers {
		changes = b.chats.deliverAll()
	}
	switch i.Kind {
	case KindChat:
		b.chats.wait(i)
	case KindDelivery:
		if changes, i.Chats = b.chats.deliver(i.Chats); len(i.Chats) == 0 {
			return changes
		}
	case KindNotice:
		if i.Notice.Kind == NoticeRefused {
			changes = b.chats.refuse(*i.Notice)
		}
	case KindCall:
		if i.Call.Result == nil {
			b.wait(i)
		}
	case KindResult:
		if whole, ok := b.answered(i.Result); ok {
			return append(changes, Change{whole, true})
		}
	case KindVerdict:
		return b.end(i)
	case KindRule:
		if i.Rule.starts() {
			return b.start(i)
		}
	}
	return append(changes, Change{Item: i})
}

// wait keeps a call until its result comes.
func (b *Builder) wait(i Item) {
	b.open = append(b.open, i)
	b.bytes += weight(i)
	for len(b.open) > mostOpen || b.bytes > mostOpenBytes {
		b.forget(0)
	}
}

func (b *Builder) forget(at int) {
	b.bytes -= weight(b.open[at])
	if at == 0 {
		b.open[0] = Item{}
		b.open = b.open[1:]
		return
	}
	b.open = append(b.open[:at], b.open[at+1:]...)
}

// weight returns about how many bytes a call keeps.
func weight(i Item) int { return 3*len(i.Call.Arguments) + 200 }

// answered returns the call of a result with the result in it; false where there is no such call.
func (b *Builder) answered(r *Result) (Item, bool) {
	for at := len(b.open) - 1; at >= 0; at-- { // of calls with the same id the newest
		i := b.open[at]
		if i.Call.ID != r.CallID {
			continue
		}
		if r.Partial {
			b.open[at].pieces = true
			return Item{}, false
		}
		result := *r
		result.Pieces = i.pieces
		if d := r.Time.Sub(i.Time); result.Duration == 0 && d > 0 && !i.Time.IsZero() {
			result.Duration = d
		}
		i.pieces = false
		call := *i.Call
		call.Result, call.State = &result, Done
		if r.Failed {
			call.State = Failed
		}
		if i.Harness == session.Codex.Harness && !strings.Contains(r.Text, codexPatched) {
			call.Diff = nil // codex marks no patch that it could not apply as an error
		}
		i.Call = &call
		i.Cut = i.Cut || r.Cut
		b.forget(at)
		return i, true
	}
	return Item{}, false
}

// start takes the beginning of a run: calls before it get no result any more.
func (b *Builder) start(i Item) []Change {
	changes := b.unanswered()
	for at := len(b.open) - 1; at >= 0; at-- {
		if !b.open[at].ofPerson() {
			b.forget(at)
		}
	}
	if b.harness != "" && i.Harness != "" && b.harness != i.Harness {
		r := *i.Rule
		r.Was, i.Rule = b.harness, &r
	}
	if i.Harness != "" {
		b.harness = i.Harness
	}
	return append(changes, Change{Item: i})
}

// unanswered returns the changes that mark the open calls as such.
func (b *Builder) unanswered() []Change {
	var changes []Change
	for at, i := range b.open {
		if i.Call.State != Running || i.ofPerson() {
			continue
		}
		call := *i.Call
		call.State = Unanswered
		i.Call = &call
		b.open[at] = i
		changes = append(changes, Change{i, true})
	}
	return changes
}

// ofPerson reports whether a call is a command that a person runs in the box, which is of no run.
func (i Item) ofPerson() bool { return i.Harness == "" }

// end takes a verdict, or one half of it. As thread.Fold has it, the first finished-signal of a run ends it, and one
// of the runner replaces a provisional one of a host.
func (b *Builder) end(i Item) []Change {
	v, last := *i.Verdict, b.verdict
	if last == nil || last.Run != i.Run || i.Run == "" && last.Verdict.second {
		last = nil
	}
	var changes []Change
	switch {
	case last == nil:
	case v.half && !last.Verdict.second && last.Verdict.Provisional == v.Provisional:
		whole := *last.Verdict
		whole.second, whole.HasTotals = true, v.HasTotals
		whole.ExitCode, whole.Signal, whole.Duration = v.ExitCode, v.Signal, v.Duration
		whole.Lines, whole.Tokens, whole.Cost = v.Lines, v.Tokens, v.Cost
		last.Verdict = &whole
		return []Change{{*last, true}}
	case last.Verdict.Provisional && !v.Provisional:
		replaced := *last.Verdict
		replaced.Replaced = true
		old := *last
		old.Verdict = &replaced
		changes = append(changes, Change{old, true})
	default:
		return nil // the run has ended
	}
	b.verdict = &i
	return append(append(changes, b.unanswered()...), Change{Item: i})
}

// starts reports whether a run starts at the rule.
func (r Rule) starts() bool {
	return r.Kind == RuleStarted || r.Kind == RuleContinued || r.Kind == RuleRebuilt
}
