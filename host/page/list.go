package page

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// Bounds of a list.
const (
	listThreads = 100    // on a page
	listOpen    = 200    // with an open run, on the first page
	mostScanned = 20_000 // threads that are looked at for one page
	scanAtOnce  = 500
	mostQuery   = 200 // bytes of a search
)

// filter selects the threads of a list: those whose title or id has Text, in any case, and whose state is State, of
// this harness; "" for all.
type filter struct{ Text, State, Harness string }

func (p *page) parseFilter(values url.Values) (f filter, err error) {
	f = filter{
		Text: strings.TrimSpace(values.Get("q")), State: values.Get("state"), Harness: values.Get("harness"),
	}
	if len(f.Text) > mostQuery {
		return f, refuse(http.StatusBadRequest, "q", "q: want at most %d bytes", mostQuery)
	}
	if f.State != "" && !slices.Contains(states, f.State) {
		return f, refuse(http.StatusBadRequest, "state", "state: want one of %s", strings.Join(states, ", "))
	}
	if all := p.Harnesses.Names(); f.Harness != "" && !slices.Contains(all, f.Harness) {
		return f, refuse(http.StatusBadRequest, "harness", "harness: want one of %s", strings.Join(all, ", "))
	}
	return f, nil
}

// has reports whether a list shows a thread.
func (f filter) has(v thread.Summary, now time.Time) bool {
	if f.Harness != "" && v.Harness != f.Harness {
		return false
	}
	if f.State != "" {
		if name, _ := stateOf(v, now); name != f.State {
			return false
		}
	}
	if f.Text == "" {
		return true
	}
	text := strings.ToLower(f.Text)
	return strings.Contains(strings.ToLower(v.Title), text) || strings.Contains(strings.ToLower(v.ID), text)
}

// statuses returns the statuses of the threads in a state, for the index; nil for all.
func (f filter) statuses() []string {
	switch f.State {
	case string(view.Working), string(view.Waiting), string(view.Silent), string(view.Dead):
		return []string{thread.StatusRunning}
	case stateDone:
		return []string{thread.StatusCompleted}
	case stateFailed:
		return []string{thread.StatusFailed}
	case stateCancelled:
		return []string{thread.StatusCancelled}
	case string(view.Idle):
		return []string{thread.StatusIdle}
	}
	return nil
}

// query returns the filter as the query of a URL.
func (f filter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"q": f.Text, "state": f.State, "harness": f.Harness} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// asked returns the filter as a query of the index, which f.has narrows.
func (f filter) asked(only func(context.Context, []string) (map[string]bool, error)) index.Query {
	q := index.Query{Statuses: f.statuses(), Limit: listThreads, Only: only}
	if f.Harness != "" {
		q.Harnesses = []string{f.Harness}
	}
	if f.Text != "" || f.State != "" {
		q.Limit = scanAtOnce
	}
	return q
}

var errNoIndex = refuse(http.StatusNotImplemented, "no_index", "This server has no list of threads.")

// load returns a page of the list, newest start first, of the threads that only has, or of all where it is nil. The
// first page has all open runs, too. It returns the cursor of the next page; "" on the last one. A filter may pass few
// of the threads that are scanned for a page, so a page may be short, or empty.
func (p *page) load(
	ctx context.Context, f filter, cursor string, only func(context.Context, []string) (map[string]bool, error),
) (all []thread.Summary, next string, err error) {
	if p.Threads == nil {
		return nil, "", errNoIndex
	}
	q := f.asked(only)
	had := map[string]bool{}
	if s := q.Statuses; cursor == "" && (s == nil || slices.Contains(s, thread.StatusRunning)) {
		open := q
		open.Statuses, open.Limit = []string{thread.StatusRunning}, listOpen
		if all, _, err = p.scan(ctx, f, open, listOpen, nil, had); err != nil {
			return nil, "", err
		}
	}
	q.Cursor = cursor
	return p.scan(ctx, f, q, listThreads, all, had)
}

// scan appends the threads of a query that a filter passes, and that were not had before, until it has looked at
// mostScanned or has n more.
func (p *page) scan(
	ctx context.Context, f filter, q index.Query, n int, all []thread.Summary, had map[string]bool,
) ([]thread.Summary, string, error) {
	now, found := now(), 0
	for scanned := 0; scanned < mostScanned; {
		page, err := p.Threads.List(ctx, q)
		if err != nil {
			return nil, "", err
		}
		for _, v := range page.Threads {
			if !f.has(v, now) {
				continue
			}
			found++
			if !had[v.ID] {
				had[v.ID] = true
				all = append(all, v)
			}
		}
		scanned += len(page.Threads)
		if q.Cursor = page.Cursor; q.Cursor == "" || found >= n {
			break
		}
	}
	return all, q.Cursor, nil
}

// summary returns the summary of a thread, which may have no entry yet. It returns index.ErrAbsent.
func (p *page) summary(ctx context.Context, id string) (thread.Summary, error) {
	if !thread.ValidThread(id) {
		return thread.Summary{}, index.ErrAbsent
	}
	if p.Threads == nil {
		return thread.Summary{}, errNoIndex
	}
	v, err := p.Threads.Summary(ctx, id)
	if errors.Is(err, index.ErrAbsent) { // nothing is listed that has no entry
		if made, statErr := p.stat(ctx, id); statErr == nil && made.Tail() == 0 {
			return thread.Summary{ID: id, Status: thread.StatusIdle}, nil
		}
	}
	return v, err
}

// listPage is the data of the list.
type listPage struct {
	frame
	Filter    filter
	States    []string
	Harnesses []string
	part
}

// part is a part of the list: what a script adds to it.
type part struct {
	Sections []section
	More     string // path of the next part; "" for none
}

// list serves the list, or its next part.
func (p *page) list(w http.ResponseWriter, r *http.Request) error {
	s, err := p.viewer(w, r, "")
	if err != nil {
		return err
	}
	values := r.URL.Query()
	f, err := p.parseFilter(values)
	if err != nil {
		return err
	}
	all, next, err := p.load(r.Context(), f, values.Get("cursor"), p.only(s))
	if err != nil {
		return err
	}
	now := now()
	rows := make([]*row, len(all))
	for i, v := range all {
		rows[i] = p.row(r.Context(), v, now)
	}
	found := part{Sections: sections(tree(rows), now)}
	if next != "" {
		q := f.query()
		q.Set("cursor", next)
		found.More = "/?" + q.Encode()
	}
	shown := listPage{newFrame(tabTitle(rows)), f, states, p.Harnesses.Names(), found}
	switch {
	case values.Has("side"):
		p.render(w, http.StatusOK, "side", shown)
	case values.Has("part"):
		p.render(w, http.StatusOK, "part", found)
	default:
		p.render(w, http.StatusOK, "list", shown)
	}
	return nil
}
