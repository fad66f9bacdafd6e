package index

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// Query names threads of the list.
type Query struct {
	Statuses  []string  // any of these; none for all
	Harnesses []string  // any of these, of the latest run; none for all
	Since     time.Time // started then or later; the zero time for all
	Limit     int       // threads of a page
	Cursor    string    // of the page before; "" for the first one

	// Only returns which of some threads may be listed; nil for all. It is called for threads of the other fields, some
	// hundred at a time. A page with Only may be short although it has a cursor.
	Only func(ctx context.Context, ids []string) (map[string]bool, error)
}

// ErrCursor is the error of a cursor that no page had.
var ErrCursor = errors.New("no cursor of a page before")

// syncWait bounds how long List and Summary wait for other threads to be folded.
const syncWait = 100 * time.Millisecond

// List returns a page of summaries, newest start first. It has folded all changes that were noted before, or as many as
// could be in 100 ms. It returns ErrBuilding and ErrCursor.
func (x *Index) List(ctx context.Context, q Query) (thread.SummaryPage, error) {
	page := thread.SummaryPage{Threads: []thread.Summary{}}
	if !x.ready.Load() {
		return page, ErrBuilding
	}
	before, err := parseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	if err := x.settle(ctx); err != nil {
		return page, err
	}
	for range 2 { // a second time where a stored value is damaged
		rows, more, err := x.search(ctx, q, before)
		if err != nil {
			return page, err
		}
		page.Threads = page.Threads[:0]
		var damaged []string
		for _, r := range rows {
			v, err := x.summary(r)
			switch {
			case err == nil:
				page.Threads = append(page.Threads, v)
			case !errors.Is(err, ErrAbsent): // deleted since
				damaged = append(damaged, r)
			}
		}
		if page.Cursor = ""; more != nil {
			page.Cursor = cursorOf(more)
		}
		if len(damaged) == 0 {
			break
		}
		x.logger.Warn("values of the index of threads are damaged: folding their threads anew",
			"threads", len(damaged))
		for _, id := range damaged {
			if err := x.again(ctx, id); err != nil {
				return page, err
			}
		}
	}
	return page, nil
}

// settle waits a little until all changes are folded.
func (x *Index) settle(ctx context.Context) error {
	if _, idle := x.idle(); idle {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, syncWait)
	defer cancel()
	for {
		err := x.Sync(limited)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if limited.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		left, idle := x.idle()
		if idle {
			return nil
		}
		if left == 0 && !pause.For(limited, time.Millisecond) { // Run folds the last ones
			return context.Cause(ctx)
		}
	}
}

// Bounds of a search with Query.Only.
const (
	searchAtOnce = 500    // threads that Only gets
	mostSearched = 20_000 // for one page
)

// search returns the ids of a page, and the row of the last one where more may follow.
func (x *Index) search(ctx context.Context, q Query, before *row) (ids []string, more *row, err error) {
	if q.Only == nil {
		found, more := x.find(q, before)
		for i := range found {
			ids = append(ids, found[i].id)
		}
		return ids, more, nil
	}
	batch := q
	batch.Limit = searchAtOnce
	for searched := 0; ; {
		found, rest := x.find(batch, before)
		all := make([]string, len(found))
		for i := range found {
			all[i] = found[i].id
		}
		may, err := q.Only(ctx, all)
		if err != nil {
			return nil, nil, err
		}
		for i := range found {
			if !may[found[i].id] {
				continue
			}
			if ids = append(ids, found[i].id); len(ids) < q.Limit {
				continue
			}
			if rest == nil && i == len(found)-1 {
				return ids, nil, nil
			}
			return ids, &found[i], nil
		}
		if searched += len(found); rest == nil || searched >= mostSearched {
			return ids, rest, nil
		}
		before = rest
	}
}

// find returns copies of the rows of a page, and the one of the last where more follow.
func (x *Index) find(q Query, before *row) (found []row, more *row) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	end := len(x.sorted)
	if before != nil {
		end, _ = slices.BinarySearchFunc(x.sorted, before, compare)
	}
	since := int64(0)
	if !q.Since.IsZero() {
		since = q.Since.UnixMilli()
	}
	for i := end - 1; i >= 0; i-- {
		r := x.sorted[i]
		if r.started < since {
			break
		}
		if !q.matches(Statuses[r.status], r.harness.Value()) {
			continue
		}
		if len(found) == q.Limit {
			return found, &found[len(found)-1]
		}
		found = append(found, *r)
	}
	return found, nil
}

// Covers reports whether a thread's change is one of the query's: whatever its status is now.
func (q Query) Covers(v thread.Summary) bool {
	return (len(q.Harnesses) == 0 || slices.Contains(q.Harnesses, v.Harness)) &&
		(q.Since.IsZero() || v.StartedAt >= thread.Stamp(q.Since))
}

// Seen returns the changes that a reader of the list may see: of the threads that Only has, and of deleted ones that
// are in sent. It adds the others to sent.
func (q Query) Seen(ctx context.Context, changes []Change, sent map[string]bool) ([]Change, error) {
	if q.Only == nil {
		return changes, nil
	}
	ids := make([]string, 0, len(changes))
	for _, c := range changes {
		if !c.Deleted {
			ids = append(ids, c.ID)
		}
	}
	may, err := q.Only(ctx, ids)
	if err != nil {
		return nil, err
	}
	var seen []Change
	for _, c := range changes {
		if may[c.ID] || c.Deleted && sent[c.ID] {
			sent[c.ID] = true
			seen = append(seen, c)
		}
	}
	return seen, nil
}

// matches reports whether a thread's status and harness match the query.
func (q Query) matches(status, harness string) bool {
	return (len(q.Statuses) == 0 || slices.Contains(q.Statuses, status)) &&
		(len(q.Harnesses) == 0 || slices.Contains(q.Harnesses, harness))
}

// read returns the row of a thread, and reads its stored summary and state into v and s, but for nil. It returns
// ErrAbsent and errDamaged.
func (x *Index) read(id string, v *thread.Summary, s *state) (r row, err error) {
	var value []byte
	err = ErrAbsent
	x.mu.RLock()
	if known := x.rows[id]; known != nil {
		r = *known
		value, err = x.store.read(id, r.place)
	}
	x.mu.RUnlock()
	if err != nil {
		return r, err
	}
	_, summary, state, err := decodeRow(value)
	if err == nil && v != nil {
		err = json.Unmarshal(summary, v)
	}
	if err == nil && s != nil {
		err = json.Unmarshal(state, s)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	return r, err
}

// summary returns the stored summary of a thread. It returns ErrAbsent and errDamaged.
func (x *Index) summary(id string) (v thread.Summary, err error) {
	_, err = x.read(id, &v, nil)
	return v, err
}

// Summary returns the summary of a thread as it is now. It returns ErrAbsent.
func (x *Index) Summary(ctx context.Context, id string) (thread.Summary, error) {
	if hidden(id) {
		return thread.Summary{}, ErrAbsent
	}
	if err := x.fold(ctx, id); err != nil {
		return thread.Summary{}, err
	}
	return x.whole(ctx, id)
}

// whole is summary, and folds a thread anew whose value is damaged.
func (x *Index) whole(ctx context.Context, id string) (thread.Summary, error) {
	v, err := x.summary(id)
	if errors.Is(err, errDamaged) {
		if err = x.again(ctx, id); err == nil {
			v, err = x.summary(id)
		}
	}
	return v, err
}

// Summaries returns the summaries of some threads, by their ids, as List has them. Threads without entries are not
// among them. It returns ErrBuilding.
func (x *Index) Summaries(ctx context.Context, ids []string) (map[string]thread.Summary, error) {
	if !x.ready.Load() {
		return nil, ErrBuilding
	}
	if err := x.settle(ctx); err != nil {
		return nil, err
	}
	all := make(map[string]thread.Summary, len(ids))
	for _, id := range ids {
		v, err := x.whole(ctx, id)
		switch {
		case err == nil:
			all[id] = v
		case !errors.Is(err, ErrAbsent):
			return nil, err
		}
	}
	return all, nil
}

// Folded is the fold of a thread's entries up to an offset. Of a signal of more than 8 KiB it lacks the long
// texts; of reactions it lacks signs of life.
type Folded struct {
	Fold      thread.Fold
	Reactions thread.Reactions
	Next      string // the offset
}

// Fold returns the fold of a thread as it is now. It returns ErrAbsent.
func (x *Index) Fold(ctx context.Context, id string) (f Folded, err error) {
	if hidden(id) {
		return f, ErrAbsent
	}
	if err := x.fold(ctx, id); err != nil {
		return f, err
	}
	var s state
	r, err := x.read(id, nil, &s)
	if err != nil {
		return f, err
	}
	return Folded{s.Fold, s.Reactions, offset(r.offset)}, nil
}

// Ready reports whether the index has all threads.
func (x *Index) Ready() bool { return x.ready.Load() }

// Versions calls f for each thread with the offset up to which it is folded. It stops at f's first error and returns
// it.
func (x *Index) Versions(f func(id string, version uint64) error) error {
	type version struct {
		id     string
		offset uint64
	}
	x.mu.RLock()
	all := make([]version, 0, len(x.rows))
	for id, r := range x.rows {
		all = append(all, version{id, r.offset})
	}
	x.mu.RUnlock()
	for _, v := range all {
		if err := f(v.id, v.offset); err != nil {
			return err
		}
	}
	return nil
}

// again folds a thread from its start.
func (x *Index) again(ctx context.Context, id string) error {
	x.mu.Lock()
	if r := x.rows[id]; r != nil {
		r.offset = 0
	}
	x.mu.Unlock()
	return x.fold(ctx, id)
}

// cursorOf returns the cursor of the page behind a row.
func cursorOf(r *row) string { return strconv.FormatInt(r.started, 10) + "." + r.id }

func parseCursor(s string) (*row, error) {
	if s == "" {
		return nil, nil
	}
	ms, id, ok := strings.Cut(s, ".")
	started, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil || !thread.ValidThread(id) {
		return nil, ErrCursor
	}
	return &row{started: started, id: id}, nil
}
