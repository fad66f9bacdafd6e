package listing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Board is a watched list: its threads, and what was printed of them.
type Board struct {
	filter  client.Filter
	limit   int
	rows    map[string]thread.Summary
	skew    time.Duration // of the server's clock
	printed map[string]string
}

// NewBoard returns the board of a list with this filter, whose page has at most limit threads.
func NewBoard(f client.Filter, limit int) *Board {
	return &Board{filter: f, limit: limit, rows: map[string]thread.Summary{}, printed: map[string]string{}}
}

// mostBoard bounds the threads of a board.
const mostBoard = 1000

// Replace takes the page with which a connection begins. gone are the threads that are no longer in it.
func (b *Board) Replace(page client.ListPage) (gone []string) {
	if !page.Now.IsZero() {
		b.skew = time.Until(page.Now)
	}
	oldest := ""
	if len(page.Threads) >= b.limit { // older ones may have no place in it
		oldest = page.Threads[len(page.Threads)-1].StartedAt
	}
	in := map[string]bool{}
	for _, v := range page.Threads {
		in[v.ID] = true
		b.rows[v.ID] = v
	}
	for id, v := range b.rows {
		if !in[id] && v.StartedAt >= oldest {
			delete(b.rows, id)
			gone = append(gone, id)
		}
	}
	slices.Sort(gone)
	return gone
}

// Change takes a change, and reports whether the thread is on the board now.
func (b *Board) Change(v client.Change) bool {
	id := v.Summary.ID
	if v.Deleted || len(b.filter.Statuses) > 0 && !slices.Contains(b.filter.Statuses, v.Summary.Status) {
		delete(b.rows, id)
		return false
	}
	b.rows[id] = v.Summary
	if len(b.rows) > mostBoard {
		delete(b.rows, b.Sorted()[len(b.rows)-1].ID)
	}
	return true
}

// Sorted returns the board's threads, newest start first.
func (b *Board) Sorted() []thread.Summary {
	rows := make([]thread.Summary, 0, len(b.rows))
	for _, v := range b.rows {
		rows = append(rows, v)
	}
	slices.SortFunc(rows, func(x, y thread.Summary) int {
		if d := strings.Compare(y.StartedAt, x.StartedAt); d != 0 {
			return d
		}
		return strings.Compare(y.ID, x.ID)
	})
	return rows
}

// Now returns the server's clock.
func (b *Board) Now() time.Time { return time.Now().Add(b.skew) }

// News reports whether a thread differs from what was printed of it, and notes it as printed.
func (b *Board) News(v thread.Summary) bool {
	state, _ := StateOf(v, b.Now())
	if state == Silent { // the list is a little late, and a heartbeat may be
		state = v.Status
	}
	cost := ""
	if v.Cost != nil {
		cost = strconv.FormatFloat(*v.Cost, 'f', -1, 64)
	}
	key := strings.Join([]string{state, v.Run, v.Harness, v.Model, cost, v.Title, v.ErrorClass}, "\x00")
	if b.printed[v.ID] == key {
		return false
	}
	if len(b.printed) > 10*mostBoard {
		clear(b.printed)
	}
	b.printed[v.ID] = key
	return true
}

// Has reports whether a thread is on the board.
func (b *Board) Has(id string) bool {
	_, has := b.rows[id]
	return has
}

// Printed reports whether a thread was printed.
func (b *Board) Printed(id string) bool { return b.printed[id] != "" }

// Forget forgets what was printed of a thread.
func (b *Board) Forget(id string) { delete(b.printed, id) }

// ParseSince parses a duration as Go writes it, or a number of days, as 7d.
func ParseSince(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, is := strings.CutSuffix(text, "d"); is {
		var n float64
		n, err = strconv.ParseFloat(days, 64)
		d = time.Duration(n * float64(24*time.Hour))
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q: want a duration, as 90m, 12h or 7d", text)
	}
	return d, nil
}

// Covers reports whether a filter covers a thread by its latest run: the harness and the start. It ignores statuses.
func Covers(f client.Filter, v thread.Summary) bool {
	began, err := time.Parse(time.RFC3339, v.StartedAt)
	return (len(f.Harnesses) == 0 || slices.Contains(f.Harnesses, v.Harness)) &&
		(f.Since.IsZero() || err == nil && !began.Before(f.Since))
}
