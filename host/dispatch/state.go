// Package dispatch decides which bots of a house answer on its threads, and what is next for each answer.
//
// A chat, and the final reply of a bot, is a trigger: for each one State.Select decides which bots react. A bot's
// reaction takes all triggers that wait for it, and calls the model and tools until it has a final reply. All of that
// stands on the thread, under ids made of what it answers: of two hosts that do the same thing one gets the id. So any
// number of hosts may dispatch, each may die at any moment, and another continues where the log ends.
//
// A tool's call is run from a round on the thread, with a key made of its place there: each try, by whichever host, has
// the key of the first one, so it finds what that has begun. A result on the thread ends the tries, also that of a call
// which is given up. What the last try has begun may still come about, under the same key: once, as the effect of
// this call. What the model calls again has another key. That is a second effect, which the model has asked for, and it
// was shown that the first may be there.
//
// The bot that drives a thread reacts by a run of its coding agent instead. The log is the queue of these runs, too: a
// chat of a human that no run has had is launched a run for, once, when no run is open.
//
// State is the fold of a thread's log, State.Select decides on a trigger, Next returns a reaction's next step, and
// Context has what its model is shown: they read no clock, no file and no row, and post nothing. Host does the work.
package dispatch

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Trigger is an entry that bots may react to.
type Trigger struct {
	ID       string
	Author   string
	At       time.Time // the server's
	Text     string
	Mentions []string // ids of bots that the writer's program has resolved

	final bool // the last reply of a reaction
	via   bool // of a bot, from another thread
	depth int  // of a final or via
	root  *thread.Root
	order int                  // place in the log
	turns int                  // finals before it
	ended map[string]time.Time // when each bot's last reaction before it ended
}

// Waiting is a trigger that a bot reacts to, and that none of its reactions has taken.
type Waiting struct {
	Trigger string
	Bot     string
	Depth   int
	Root    *thread.Root
	Reason  string
	at, due time.Time // of the trigger; from when on the bot may react
	order   int
}

// State is the fold of a thread's entries on bots. Make it with NewState, and Add the entries in their order, with or
// without deltas.
type State struct {
	threadID string
	since    time.Time

	entries   int
	undecided []Trigger
	waiting   []Waiting           // in the order of the triggers
	open      map[string]*Journal // by reaction
	begun     map[string]int      // reactions of each bot
	ended     map[string]time.Time
	finals    int
	human     int // finals before the newest trigger of depth 0
	drive     drive
}

// NewState returns the state of an empty thread. What the thread's server received before since is no trigger.
func NewState(threadID string, since time.Time) *State {
	return &State{
		threadID: threadID, since: since, open: map[string]*Journal{},
		begun: map[string]int{}, ended: map[string]time.Time{}, drive: drive{threadID: threadID},
	}
}

// Add adds the thread's next entry. What it does not understand changes nothing.
func (s *State) Add(e thread.Entry) {
	s.entries++
	f, err := thread.Scan(e.Payload)
	if err != nil {
		return
	}
	s.drive.add(f, e)
	switch f.Type {
	case thread.TypeChat:
		s.chat(e)
	case thread.TypeDecided:
		add(e, s.decided)
	case thread.TypeReactionClaimed:
		add(e, s.claimed)
	case thread.TypeReactionAlive:
		add(e, s.alive)
	case thread.TypeRound:
		add(e, s.round)
	case thread.TypeResult:
		add(e, s.result)
	case thread.TypeReactionCancel:
		add(e, s.cancel)
	case thread.TypeReactionFinished:
		add(e, s.finished)
	}
}

// add calls f with the payload of an entry as a T, where it is one.
func add[T any](e thread.Entry, f func(e thread.Entry, p T)) {
	var p T
	if json.Unmarshal(e.Payload, &p) == nil {
		f(e, p)
	}
}

// chat is the payload of a chat.
type chat struct {
	Text     string
	RunID    string
	Session  json.RawMessage
	Quiet    bool
	Mentions []string
	Via      *thread.Via
}

// no returns why a chat with an id is no trigger; "" for one that is.
func (c chat) no(id string) string {
	switch {
	case c.Session != nil:
		return "it is a line of an agent's session"
	case c.RunID != "":
		return "it is the prompt of a run"
	case c.Quiet || thread.IsHostID(id): // of a host that does not mark it
		return "it is the result of a task"
	}
	return ""
}

// NoTrigger returns why no bot reacts to an entry of this kind; "" for a trigger.
func NoTrigger(e thread.Entry) string {
	switch thread.TypeOf(e.Payload) {
	case thread.TypeChat:
		why := "it can't be read"
		add(e, func(e thread.Entry, c chat) { why = c.no(e.ID) })
		return why
	case thread.TypeRound:
		why := "it is a line of an agent's session"
		add(e, func(_ thread.Entry, p thread.Round) {
			switch {
			case p.Reaction.ID == "":
			case len(callsOf(p.Message)) > 0:
				why = "it is no bot's last reply: it calls tools"
			default:
				why = ""
			}
		})
		return why
	}
	return "it is neither a chat nor a bot's reply"
}

func (s *State) chat(e thread.Entry) {
	var p chat
	if json.Unmarshal(e.Payload, &p) != nil || p.no(e.ID) != "" {
		return
	}
	t := Trigger{ID: e.ID, Author: e.AuthorID, Text: p.Text, Mentions: p.Mentions}
	if v := p.Via; v != nil {
		t.via, t.depth, t.root = true, v.Depth, v.Root
	}
	if s.place(e, t) {
		s.drive.chat(e)
	}
}

// place adds a trigger, unless it is too old to be one.
func (s *State) place(e thread.Entry, t Trigger) bool {
	t.At = e.Received()
	if t.At.Before(s.since) {
		return false
	}
	t.order, t.turns, t.ended = s.entries, s.finals, maps.Clone(s.ended)
	s.undecided = append(s.undecided, t)
	return true
}

func (s *State) decided(_ thread.Entry, p thread.Decided) {
	i := slices.IndexFunc(s.undecided, func(t Trigger) bool { return t.ID == p.Trigger })
	if i < 0 {
		return
	}
	t := s.undecided[i]
	s.undecided = slices.Delete(s.undecided, i, i+1)
	s.drive.decided(p)
	if p.Depth == 0 {
		s.human = max(s.human, t.turns)
	}
	for _, c := range p.Bots {
		if c.Decision != thread.DecisionReact || c.Reason == thread.ReasonDriver {
			continue
		}
		w := Waiting{
			Trigger: t.ID, Bot: c.AgentID, Depth: p.Depth, Root: p.Root, Reason: c.Reason, at: t.At, due: t.At,
			order: t.order,
		}
		if due, err := time.Parse(time.RFC3339Nano, c.DueAt); err == nil {
			w.due = due
		}
		s.waiting = append(s.waiting, w)
	}
	slices.SortStableFunc(s.waiting, func(a, b Waiting) int { return a.order - b.order })
}

func (s *State) claimed(e thread.Entry, p thread.ReactionClaimed) {
	j := s.open[p.Reaction]
	switch {
	case p.Begun != nil && p.Claim == 0 && j == nil:
		j = &Journal{ID: p.Reaction, Bot: p.AgentID, Begun: *p.Begun, At: e.Received(), order: s.entries}
		s.open[j.ID] = j
		s.begun[j.Bot]++
		s.waiting = slices.DeleteFunc(s.waiting, func(w Waiting) bool {
			taken := w.Bot == j.Bot && slices.Contains(j.Chats, w.Trigger)
			if taken {
				j.roots = append(j.roots, w.Root)
			}
			return taken
		})
	case j == nil || p.Claim <= j.Claim:
		return
	case j.released:
		j.idle = 0
	}
	j.idle++
	j.Claim, j.Instance, j.released, j.last = p.Claim, p.Instance, false, e.Received()
	j.lease = time.Duration(p.LeaseMs) * time.Millisecond
}

func (s *State) alive(e thread.Entry, p thread.ReactionAlive) {
	if j := s.open[p.Reaction]; j != nil && p.Claim == j.Claim {
		j.last, j.released = e.Received(), p.Released
	}
}

func (s *State) round(e thread.Entry, p thread.Round) {
	j := s.open[p.Reaction.ID]
	if j == nil || p.Reaction.Round != len(j.Rounds) {
		return
	}
	calls := callsOf(p.Message)
	j.Rounds = append(j.Rounds, Round{Calls: calls, Results: make([]bool, len(calls)), Used: usedOf(p)})
	j.progress(e)
	if len(calls) == 0 {
		s.place(e, Trigger{
			ID: e.ID, Author: j.Bot, Text: textOf(p.Message), final: true, depth: j.Depth + 1, root: j.Root,
		})
	}
}

func (s *State) result(e thread.Entry, p thread.CallResult) {
	j := s.open[p.Reaction.ID]
	if j == nil || p.Reaction.Round >= len(j.Rounds) {
		return
	}
	r := j.Rounds[p.Reaction.Round]
	for i := range r.Calls {
		if e.ID == thread.CallResultID(j.ID, p.Reaction.Round, i) {
			r.Results = slices.Clone(r.Results) // others have copies of the journal
			r.Results[i] = true
			j.Rounds = slices.Clone(j.Rounds)
			j.Rounds[p.Reaction.Round] = r
			if j.invalid++; !p.Invalid {
				j.invalid = 0
			}
			j.progress(e)
		}
	}
}

func (s *State) cancel(_ thread.Entry, p thread.ReactionCancel) {
	if j := s.open[p.Reaction]; j != nil {
		j.cancelled = true
	}
}

func (s *State) finished(e thread.Entry, p thread.ReactionFinished) {
	j := s.open[p.Reaction]
	if j == nil {
		return
	}
	delete(s.open, p.Reaction)
	s.ended[j.Bot] = e.Received()
	if p.Outcome == thread.ReactionAnswered {
		s.finals++
	}
}

// Undecided returns a trigger without a decision; false where the state has no such trigger.
func (s *State) Undecided(id string) (Trigger, bool) {
	i := slices.IndexFunc(s.undecided, func(t Trigger) bool { return t.ID == id })
	if i < 0 {
		return Trigger{}, false
	}
	return s.undecided[i], true
}

// Reaction returns the journal of an open reaction; nil for none.
func (s *State) Reaction(id string) *Journal { return s.open[id] }

// quiet reports whether nothing is open: no trigger without a decision, none that waits for a bot or a run, and no
// reaction.
func (s *State) quiet() bool {
	return len(s.undecided)+len(s.waiting)+len(s.open) == 0 && !s.drive.waits()
}

// Work has what a host can do on a thread now.
type Work struct {
	Decide []Trigger // by Select, in the order of the log
	Start  []Start   // a new reaction each
	Take   []Journal // open reactions whose holder is silent or has let go
	Resume []Resume  // runs that chats of a driven thread wait for: one of them takes all
	Due    time.Time // when there may be more without a new entry; zero for never
}

// Start is a reaction that can begin.
type Start struct {
	ID           string
	Bot          string
	thread.Begun // Chats, Depth, Root and Reason
}

// mostDelay bounds how long later triggers put off an ambient reaction, from the first one on.
const mostDelay = 30 * time.Second

// Open returns what can be done now, by the server's clock.
func (s *State) Open(now time.Time) (w Work) {
	w.Decide, w.Resume = slices.Clone(s.undecided), s.drive.open()
	busy := map[string]bool{}
	for _, j := range s.open {
		busy[j.Bot] = true
		if over := j.last.Add(j.lease); j.released || !now.Before(over) {
			w.Take = append(w.Take, *j)
		} else {
			w.later(over)
		}
	}
	slices.SortFunc(w.Take, func(a, b Journal) int { return strings.Compare(a.ID, b.ID) })
	var bots []string
	for _, x := range s.waiting {
		if !busy[x.Bot] && !slices.Contains(bots, x.Bot) {
			bots = append(bots, x.Bot)
		}
	}
	for _, bot := range bots {
		if st, ok := s.start(bot, now, w.later); ok {
			w.Start = append(w.Start, st)
		}
	}
	return w
}

// later records that something is due at t.
func (w *Work) later(t time.Time) {
	if w.Due.IsZero() || t.Before(w.Due) {
		w.Due = t
	}
}

// start returns the reaction that a bot can begin: to all triggers of depth 0 that are due, else to the oldest one that
// is deeper, so that chains never mix.
func (s *State) start(bot string, now time.Time, later func(time.Time)) (Start, bool) {
	var shallow, deep []Waiting
	due := s.ambientDue(bot)
	for _, w := range s.waiting {
		switch {
		case w.Bot != bot:
		case w.Depth > 0:
			deep = append(deep, w)
		case w.Reason == thread.ReasonAmbient && now.Before(due):
			later(due)
		default:
			shallow = append(shallow, w)
		}
	}
	take := shallow
	if len(take) == 0 {
		take = deep[:min(1, len(deep))]
	}
	if len(take) == 0 {
		return Start{}, false
	}
	st := Start{ID: thread.ReactionID(s.threadID, bot, s.begun[bot]), Bot: bot}
	st.Depth, st.Root, st.Reason = take[0].Depth, take[0].Root, take[0].Reason
	for _, w := range take {
		st.Chats = append(st.Chats, w.Trigger)
		if w.Reason != thread.ReasonAmbient {
			st.Reason = w.Reason
		}
	}
	return st, true
}

// ambientDue returns when a bot's ambient triggers of depth 0 are due: each one puts all off, but not for ever.
func (s *State) ambientDue(bot string) (due time.Time) {
	var first time.Time
	for _, w := range s.waiting {
		if w.Bot != bot || w.Depth > 0 || w.Reason != thread.ReasonAmbient {
			continue
		}
		if first.IsZero() {
			first = w.at
		}
		if w.due.After(due) {
			due = w.due
		}
	}
	if most := first.Add(mostDelay); due.After(most) {
		return most
	}
	return due
}
