package page

import (
	"cmp"
	"context"
	"fmt"
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
	Age      string   // of the last entry
	Since    string   // the run's end
	Children []*row   // only in a tree
	Bots     []string // names of those that answer
}

func newRow(v thread.Summary, now time.Time) *row {
	r := &row{
		Summary: v, Started: millis(parseTime(v.StartedAt)), Ended: millis(parseTime(v.EndedAt)),
		Heard: millis(parseTime(v.LastEntryAt)),
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
	if r.Ended > 0 {
		r.Since = span(now.Sub(time.UnixMilli(r.Ended)))
	}
	r.Age = span(now.Sub(time.UnixMilli(r.Heard)))
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

// head returns the row above a thread, with the thread's name where it has one.
func (r *reader) head(ctx context.Context, v thread.Summary) *row {
	one := r.row(ctx, v, now())
	if !r.shared {
		one.Title = cmp.Or(r.whose(ctx, v.ID).Thread.Name, one.Title)
	}
	return one
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

// span returns a duration for people, in its two largest units. page.js has the same rules.
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

// tabTitle returns the title of the list's tab: how many threads are in the states that call for attention. page.js has
// the same rules.
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
	case live.State == view.Ended && v.ErrorClass != "":
		return stateFailed, "failed: " + v.ErrorClass
	case live.State == view.Ended:
		return stateFailed, stateFailed
	case live.State == view.Silent: // page.js has the same words
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
