package view

import (
	"slices"
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
// that have no result yet, the chats that are not delivered yet, the newest verdict, the reactions of bots that have
// not ended, the newest reply of a bot, the tasks that have not ended, and nothing else. The zero value is ready. It is
// not safe for concurrent use.
type Builder struct {
	Harnesses session.List // those whose lines may be on the thread; nil for session's list
	// Runs reports whether the thread has had a run, as far as the entries show it, or the caller, who has set it. On a
	// thread without one no chat waits for an agent, and a painter shows none as Undelivered: see
	// thread.Summary.Undelivered.
	Runs bool

	chats   waiting // that are not delivered
	calls   waiting // without a result
	verdict *Item   // the newest
	harness string  // of the newest run

	answering answering
	reply     *Item // of a bot, the newest
	capped    bool  // bots have replied enough, and no person has written since
	tasks     []string
}

// Add returns what the thread's next entry changes: nothing for an entry that is not shown.
func (b *Builder) Add(e thread.Entry) []Change {
	var changes []Change
	b.answering.add(e)
	for _, i := range Items(e, b.Harnesses) {
		if !b.Runs && i.ofAgent() {
			b.Runs = true
			changes = append(changes, b.chats.changes()...)
		}
		changes = append(changes, b.put(i)...)
	}
	return changes
}

// Running returns the calls of the run's main conversation that have no result yet, the oldest first.
func (b *Builder) Running() []Item { return b.running("") }

func (b *Builder) running(reaction string) []Item {
	var calls []Item
	for _, i := range b.calls.items {
		if i.Subagent == nil && i.of() == reaction && i.Call.State == Running {
			calls = append(calls, i)
		}
	}
	return calls
}

// Undelivered returns how many chats wait for an agent.
func (b *Builder) Undelivered() int {
	if !b.Runs {
		return 0
	}
	return len(b.chats.items)
}

// Tasks returns the ids of the threads of delegated tasks that have not ended, the oldest first.
func (b *Builder) Tasks() []string { return slices.Clone(b.tasks) }

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
		b.capped = b.capped && i.IsBot()
		if i.Input.Waits() {
			b.chats.add(i)
		}
	case KindDelivery:
		if changes, i.Chats = b.chats.deliver(i.Chats); len(i.Chats) == 0 {
			return changes
		}
	case KindNotice:
		return b.notice(i)
	case KindText, KindStop:
		if i.Reaction != nil && i.Reaction.Reply {
			b.reply = &i
		}
	case KindEnd:
		return b.replied(i)
	case KindCall:
		if i.Call.Result == nil {
			b.calls.add(i)
		}
	case KindResult:
		if whole, ok := b.answered(i.Result, i.of()); ok {
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

// notice returns what a notice changes.
func (b *Builder) notice(i Item) (changes []Change) {
	switch {
	case b.repeats(*i.Notice):
		return nil
	case i.Notice.Kind == NoticeRefused:
		changes = b.chats.refuse(*i.Notice)
	case i.Notice.Kind == NoticeChild:
		b.task(*i.Notice)
	case i.Notice.Kind == NoticeReaction:
		changes = b.unanswered(func(call Item) bool { return call.of() == i.of() })
	}
	return append(changes, Change{Item: i})
}

// mostTasks bounds the tasks that a Builder holds. The oldest ones are forgotten beyond that.
const mostTasks = 100

// task takes the beginning or the end of a task.
func (b *Builder) task(n Notice) {
	b.tasks = slices.DeleteFunc(b.tasks, func(id string) bool { return id == n.Thread })
	if !n.Ended && thread.ValidThread(n.Thread) {
		b.tasks = append(b.tasks, n.Thread)
	}
	b.tasks = b.tasks[max(0, len(b.tasks)-mostTasks):]
}

// answered returns the call of a result with the result in it; false where there is no such call. reaction is the id of
// the bot's reaction that the result is of; "" for none.
func (b *Builder) answered(r *Result, reaction string) (Item, bool) {
	for at, i := range slices.Backward(b.calls.items) { // of calls with the same id the newest
		if i.Call.ID != r.CallID || i.of() != reaction {
			continue
		}
		if r.Partial {
			b.calls.items[at].pieces = true
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
		b.calls.take(at)
		return i, true
	}
	return Item{}, false
}

// start takes the beginning of a run: calls before it get no result any more.
func (b *Builder) start(i Item) []Change {
	changes := b.unanswered(Item.ofRun)
	for at, i := range slices.Backward(b.calls.items) {
		if i.ofRun() {
			b.calls.take(at)
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

// unanswered returns the changes that mark some of the open calls as such.
func (b *Builder) unanswered(some func(Item) bool) []Change {
	var changes []Change
	for at, i := range b.calls.items {
		if i.Call.State != Running || !some(i) {
			continue
		}
		call := *i.Call
		call.State = Unanswered
		i.Call = &call
		b.calls.items[at] = i
		changes = append(changes, Change{i, true})
	}
	return changes
}

// ofAgent reports whether an item shows that a run is, or was, on the thread. The end of a child names the child's run.
func (i Item) ofAgent() bool {
	return i.Harness != "" || i.Run != "" && (i.Notice == nil || i.Notice.Kind != NoticeChild)
}

// ofRun reports whether a call is of a run's agent: not a command that a person runs in the box, and not of a bot.
func (i Item) ofRun() bool { return i.Harness != "" }

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
	return append(append(changes, b.unanswered(Item.ofRun)...), Change{Item: i})
}

// starts reports whether a run starts at the rule.
func (r Rule) starts() bool {
	return r.Kind == RuleStarted || r.Kind == RuleContinued || r.Kind == RuleRebuilt
}

// waiting are calls that wait for their results, or chats that wait until they are delivered, the oldest first.
type waiting struct {
	items []Item
	bytes int // by weight
}

// add adds an item, and forgets the oldest ones beyond the bounds.
func (w *waiting) add(i Item) {
	w.items = append(w.items, i)
	w.bytes += weight(i)
	for len(w.items) > mostOpen || w.bytes > mostOpenBytes {
		w.take(0)
	}
}

// take removes and returns an item.
func (w *waiting) take(at int) Item {
	i := w.items[at]
	w.bytes -= weight(i)
	if at == 0 {
		w.items[0] = Item{}
		w.items = w.items[1:]
	} else {
		w.items = slices.Delete(w.items, at, at+1)
	}
	return i
}

// weight returns about how many bytes a call or a chat keeps.
func weight(i Item) int {
	if i.Call != nil {
		return 3*len(i.Call.Arguments) + 200
	}
	return len(i.Text)
}

// deliver returns the changes that mark chats as delivered, and the chats that are not known.
func (w *waiting) deliver(ids []string) (changes []Change, unknown []string) {
	for _, id := range ids {
		if at := w.find(id); at >= 0 {
			changes = append(changes, marked(w.take(at), Delivered, ""))
		} else {
			unknown = append(unknown, id)
		}
	}
	return changes, unknown
}

// deliverAll returns the changes that mark all chats as delivered.
func (w *waiting) deliverAll() (changes []Change) {
	for len(w.items) > 0 {
		changes = append(changes, marked(w.take(0), Delivered, ""))
	}
	return changes
}

// refuse returns the change that marks a chat as refused; none for one that is not known.
func (w *waiting) refuse(n Notice) []Change {
	at := w.find(n.Chat)
	if at < 0 {
		return nil
	}
	return []Change{marked(w.take(at), Refused, n.Reason)}
}

// changes returns the items as changes of items that are there.
func (w *waiting) changes() (changes []Change) {
	for _, i := range w.items {
		changes = append(changes, Change{i, true})
	}
	return changes
}

func (w *waiting) find(id string) int {
	return slices.IndexFunc(w.items, func(i Item) bool { return i.Entry == id })
}

// marked returns the change that gives a chat another delivery.
func marked(i Item, d Delivery, reason string) Change {
	in := *i.Input
	in.Delivery, in.Reason = d, reason
	i.Input = &in
	return Change{i, true}
}
