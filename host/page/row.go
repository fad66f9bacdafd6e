package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// row is a thread in the list.
type row struct {
	thread.Summary
	State    string
	Label    string // the state for people
	Started  int64  // ms since 1970
	Ended    int64  // 0 for an open run
	Heard    int64  // the last entry
	Silent   int64  // when the run is silent unless another entry comes; 0 for none
	Dead     int64  // and dead
	Duration string
	Age      string   // of the last entry, or of the run's end
	Children []*row   // only in a tree
	Bots     []string // names of those that answer

	now int64 // when it was made
}

func newRow(v thread.Summary, now time.Time) *row {
	r := &row{
		Summary: v, Started: millis(parseTime(v.StartedAt)), Ended: millis(parseTime(v.EndedAt)),
		Heard: millis(parseTime(v.LastEntryAt)), now: now.UnixMilli(),
	}
	r.State, r.Label = stateOf(v, now)
	silent, dead := view.PulseOf(v).Limits()
	r.Silent, r.Dead = millis(silent), millis(dead)
	until := now
	if r.Ended > 0 {
		until = time.UnixMilli(r.Ended)
	}
	took := until.Sub(time.UnixMilli(r.Started))
	// A thread that was imported has no duration: its entries came all at once.
	if v.Run != "" && r.Started > 0 && (r.Ended == 0 || took >= time.Second) {
		r.Duration = span(took)
	}
	if at := cmp.Or(r.Ended, r.Heard); at > 0 {
		r.Age = age(now.Sub(time.UnixMilli(at)))
	}
	return r
}

// row returns the row of a thread, with the names of the bots that answer on it.
func (p *page) row(ctx context.Context, v thread.Summary, now time.Time) *row {
	r := newRow(v, now)
	if len(v.Answering) > 0 {
		of := p.whose(ctx, v.ID).names
		for _, id := range v.Answering {
			r.Bots = append(r.Bots, of.bot(id))
		}
	}
	return r
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Name returns the title; the id for a thread without one.
func (r *row) Name() string { return cmp.Or(r.Title, r.ID) }

// ParentID returns the id of the parent; "" for none.
func (r *row) ParentID() string {
	if r.Parent == nil {
		return ""
	}
	return r.Parent.ThreadID
}

// HasParent reports whether the parent's id can be a thread's. The writer of the run's first entry chose it.
func (r *row) HasParent() bool { return thread.ValidThread(r.ParentID()) }

// Money returns the cost in US dollars; "" where the harness reports none, or 0.
func (r *row) Money() string {
	if r.Cost == nil {
		return ""
	}
	if *r.Cost < 0.01 {
		return view.Dollars(*r.Cost)
	}
	return fmt.Sprintf("$%.2f", *r.Cost)
}

// Names returns the names of the bots that answer; "" for none.
func (r *row) Names() string { return strings.Join(r.Bots, ", ") }

// Box returns the run's box; "" for none.
func (r *row) Box() string {
	if r.Sandbox == nil {
		return ""
	}
	return r.Sandbox.Provider + " " + strings.ToValidUTF8(r.Sandbox.Ref[:min(len(r.Sandbox.Ref), 12)], "")
}

// Since returns the time that the row's age counts from.
func (r *row) Since() int64 { return cmp.Or(r.Ended, r.Heard) }

// Ago returns the exact age.
func (r *row) Ago() string { return span(time.Duration(r.now-r.Since()) * time.Millisecond) }

// age returns how long ago a thing was, for people who scan a list. clock.js has the same rules.
func age(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return "now"
	case s < 3600:
		return fmt.Sprintf("%dm", s/60)
	case s < 86400:
		return fmt.Sprintf("%dh", s/3600)
	}
	return fmt.Sprintf("%dd", s/86400)
}

// span returns a duration for people, in its two largest units. clock.js has the same rules.
func span(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm %ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh %dm", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%dd %dh", s/86400, s%86400/3600)
}

// mostDepth bounds the depth of a tree. Deeper threads stand at its top.
const mostDepth = 20

// tree puts children below their parents, and returns the rest. Rows that are their own ancestors stand at the top.
func tree(rows []*row) (top []*row) {
	byID := make(map[string]*row, len(rows))
	for _, r := range rows {
		byID[r.ID] = r
	}
	for _, r := range rows {
		parent := byID[r.ParentID()]
		if parent == nil || !rooted(r, byID) {
			top = append(top, r)
			continue
		}
		parent.Children = append(parent.Children, r)
	}
	return top
}

// rooted reports whether the ancestors of a row end within mostDepth.
func rooted(r *row, byID map[string]*row) bool {
	for range mostDepth {
		if r = byID[r.ParentID()]; r == nil {
			return true
		}
	}
	return false
}

// tabTitle returns the title of the list's tab: how many threads are in the states that call for attention. clock.js
// has the same rules.
func tabTitle(rows []*row) string {
	var parts []string
	for _, name := range []view.LiveState{view.Working, view.Waiting, view.Silent, view.Dead} {
		n := 0
		for _, r := range rows {
			if r.State == string(name) {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, name))
		}
	}
	if len(parts) == 0 {
		return "arbe"
	}
	return strings.Join(parts, ", ") + " · arbe"
}

// Ranks of rows: what needs a person stands first. list.js has the same rules.
const (
	rankFailed = iota // or dead: a person has to look
	rankWaiting
	rankSilent
	rankWorking
	rankRest
)

// freshFailure is how long a failed run needs a person. A browser that has shown it needs it no more.
const freshFailure = 24 * time.Hour

// rank returns the rank of a row alone.
func (r *row) rank(now time.Time) int {
	switch r.State {
	case string(view.Dead):
		return rankFailed
	case stateFailed:
		if now.Sub(time.UnixMilli(r.Ended)) < freshFailure {
			return rankFailed
		}
	case string(view.Waiting):
		return rankWaiting
	case string(view.Silent):
		return rankSilent
	case string(view.Working):
		return rankWorking
	}
	return rankRest
}

// treeRank returns the rank of a row with its children: that of the one that needs a person most.
func (r *row) treeRank(now time.Time) int {
	rank := r.rank(now)
	for _, c := range r.Children {
		rank = min(rank, c.treeRank(now))
	}
	return rank
}

// section is a part of the list.
type section struct {
	Name, Title string
	Rows        []*row
}

// sections divides the rows of a list: by what a person has to do, and then the newest start first.
func sections(rows []*row, now time.Time) []section {
	all := []section{
		{Name: "needs", Title: "Needs you"}, {Name: "working", Title: "Working"}, {Name: "earlier", Title: "Earlier"},
	}
	ranks := make(map[*row]int, len(rows))
	for _, r := range rows {
		ranks[r] = r.treeRank(now)
	}
	slices.SortStableFunc(rows, func(a, b *row) int {
		return cmp.Or(ranks[a]-ranks[b], cmp.Compare(b.Started, a.Started))
	})
	for _, r := range rows {
		at := &all[2]
		switch rank := ranks[r]; {
		case rank <= rankWaiting:
			at = &all[0]
		case rank <= rankWorking:
			at = &all[1]
		}
		at.Rows = append(at.Rows, r)
	}
	return all
}

// States of a thread in the list beside those of an open run, which package view has.
const (
	stateDone      = "done"
	stateFailed    = "failed"
	stateCancelled = "cancelled"
)

// states are all states, in the order in which the list offers them.
var states = []string{
	string(view.Working), string(view.Waiting), string(view.Silent), string(view.Dead),
	stateDone, stateFailed, stateCancelled, string(view.Idle),
}

// stateOf returns the state of a thread at a time, and for people.
func stateOf(v thread.Summary, now time.Time) (name, label string) {
	live := view.PulseOf(v).At(now)
	switch {
	case live.State == view.Ended && v.Status == thread.StatusCompleted:
		return stateDone, stateDone
	case live.State == view.Ended && v.Status == thread.StatusCancelled:
		return stateCancelled, stateCancelled
	case live.State == view.Ended:
		return stateFailed, view.Failure(v.ErrorClass)
	case live.State == view.Silent: // clock.js has the same words
		return string(live.State), "silent, dead in " + span(live.DeadIn)
	}
	return string(live.State), string(live.State)
}

// parseTime parses a time of a summary; the zero time for "".
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
