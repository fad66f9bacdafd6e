package dispatch

import (
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Work has what a host can do on a thread now.
type Work struct {
	Decide []Trigger // by Select, in the order of the log
	Start  []Start   // a new reaction each
	Take   []Journal // open reactions whose holder is silent or has let go
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
	w.Decide = slices.Clone(s.undecided)
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
