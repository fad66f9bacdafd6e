package page

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"time"

	"arbe.0sk.ar/runner/host/access"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// Where very many threads change at once, a browser gets the newest of them first, so many at a time and not faster
// than it can show them.
const (
	rowsAtOnce = 100
	rowsPause  = 250 * time.Millisecond
	fewRows    = 10 // are sent without a pause behind them
)

// listSlack is how much later than an entry a list may have it. A browser gets the rows again of what came so shortly
// before its list was made.
const listSlack = time.Minute

// liveRows are rows that have changed.
type liveRows struct {
	Rows []liveRow `json:"rows"`
}

// liveRow is a row that has changed. HTML is empty for one that the list no longer has.
type liveRow struct {
	ID      string `json:"id"`
	Offset  string `json:"offset,omitempty"` // of the thread: the browser may have the row
	Started int64  `json:"started,omitempty"`
	Open    bool   `json:"open,omitempty"` // it stands above those that have no run now
	HTML    string `json:"html,omitempty"`
}

// listTopic returns the changes of a list: the rows of its first part that have changed since the time "since" of a
// query, then ready, then each row that changes.
func (p *page) listTopic(s access.Session, query url.Values) (*topic, error) {
	f, err := p.parseFilter(query)
	if err != nil {
		return nil, err
	}
	since, err := strconv.ParseInt(query.Get("since"), 10, 64)
	if err != nil {
		since = 0
	}
	if p.Threads == nil {
		return nil, errNoIndex
	}
	return &topic{follow: func(ctx context.Context, t *topic) error {
		changes := p.Threads.Watch() // before the list: what changes meanwhile is sent again
		defer changes.Close()
		l := &listed{page: p, topic: t, filter: f, only: p.only(s), sent: map[string]bool{}}
		all, _, err := p.load(ctx, f, "", l.only)
		if err != nil {
			return err
		}
		var rows []thread.Summary
		for _, v := range all {
			l.sent[v.ID] = true
			if parseTime(v.LastEntryAt).UnixMilli() >= since-listSlack.Milliseconds() {
				rows = append(rows, v)
			}
		}
		if err := l.send(ctx, rows, nil); err != nil {
			return err
		}
		t.send("ready", map[string]int64{"now": now().UnixMilli()})
		return l.follow(ctx, changes)
	}}, nil
}

// listed is a list that a browser follows.
type listed struct {
	*page
	topic  *topic
	filter filter
	only   func(context.Context, []string) (map[string]bool, error)
	sent   map[string]bool // a member gets the changes of these alone, and of those that it may open
	late   []thread.Summary
}

// follow sends what changes until ctx is done.
func (l *listed) follow(ctx context.Context, changes *index.Reader) error {
	for l.topic.flush() && (len(l.late) > 0 || wait(ctx, changes.News())) {
		gone, err := l.take(ctx, changes)
		if errors.Is(err, index.ErrSlow) {
			return errInterrupted
		}
		if err != nil {
			return err
		}
		n := min(len(l.late), rowsAtOnce)
		some := l.late[:n]
		l.late = l.late[n:]
		if err := l.send(ctx, some, gone); err != nil {
			return err
		}
		if n+len(gone) > fewRows && (!l.topic.flush() || !pause.For(ctx, rowsPause)) {
			break
		}
	}
	return nil
}

// take adds the threads that have changed to late, the newest start first. It returns the ids of deleted ones.
func (l *listed) take(ctx context.Context, changes *index.Reader) (gone []string, err error) {
	for more := true; more; {
		var some []index.Change
		if some, more, err = changes.Take(ctx, scanAtOnce); err != nil {
			return nil, err
		}
		if some, err = (index.Query{Only: l.only}).Seen(ctx, some, l.sent); err != nil {
			return nil, err
		}
		for _, c := range some {
			if c.Deleted {
				gone = append(gone, c.ID)
			} else {
				l.late = append(l.late, c.Summary)
			}
		}
	}
	if len(l.late) > rowsAtOnce { // a thread may have changed again
		last := map[string]int{}
		for i, v := range l.late {
			last[v.ID] = i
		}
		i := -1
		l.late = slices.DeleteFunc(l.late, func(v thread.Summary) bool { i++; return last[v.ID] != i })
		slices.SortStableFunc(l.late, func(a, b thread.Summary) int {
			open := func(v thread.Summary) int {
				if v.Status == thread.StatusRunning {
					return 0
				}
				return 1
			}
			return cmp.Or(open(a)-open(b), cmp.Compare(b.StartedAt, a.StartedAt))
		})
	}
	return gone, nil
}

// send sends rows, and that the list has others no more.
func (l *listed) send(ctx context.Context, rows []thread.Summary, gone []string) error {
	var all liveRows
	for _, id := range gone {
		all.Rows = append(all.Rows, liveRow{ID: id})
	}
	now := now()
	for _, v := range rows {
		one := liveRow{ID: v.ID}
		if l.filter.has(v, now) {
			r := l.row(ctx, v, now)
			var b bytes.Buffer
			if err := templates.ExecuteTemplate(&b, "row", r); err != nil {
				return err
			}
			one = liveRow{v.ID, v.Offset, r.Started, v.Status == thread.StatusRunning, b.String()}
		}
		all.Rows = append(all.Rows, one)
	}
	if len(all.Rows) > 0 {
		l.topic.send("rows", all)
	}
	return l.topic.failed()
}
