package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// ErrNoList is the error of a server that has no list of threads: an older one, or no thread server at all.
var ErrNoList = errors.New("no list of threads at this address")

// ListLimit is the largest page of the list, in threads.
const ListLimit = 200

// Filter selects threads of the list. The zero value selects all.
type Filter struct {
	Statuses  []string  // any of these; none for all
	Harnesses []string  // any of these, of the latest run; none for all
	Since     time.Time // the latest run began then or later, by the server's clock; the zero time for all
}

// ListPage is a page of the list.
type ListPage struct {
	thread.SummaryPage
	Now time.Time // the server's clock when it answered, to the second; zero where the answer has none
}

// Change is one thread of a watched list that has changed.
type Change struct {
	Summary thread.Summary // of a deleted thread it has only the ID
	Deleted bool
}

// List is the list of all threads of a server.
type List struct{ c *Client }

// NewList returns the list of the server at c.Base. The tokens of c have the subject "threads" and the scope
// threads:read. c.Thread is not used.
func NewList(c *Client) List { return List{c} }

// Address returns the server's URL for messages, without user and password.
func (l List) Address() string { return l.c.Address() }

// Health is Client.Health.
func (l List) Health(ctx context.Context) (Health, error) { return l.c.Health(ctx) }

// Thread returns the summary of one thread of the list. It is Client.Summary.
func (l List) Thread(ctx context.Context, id string) (thread.Summary, error) {
	v, _, err := l.c.summaryOf(ctx, id)
	return v, err
}

// Page returns one page of the list, newest start first, of at most limit threads (0 for the server's default, at most
// ListLimit). Cursor is "" for the first page, else the Cursor of the page before. It returns ErrNoList.
func (l List) Page(ctx context.Context, f Filter, limit int, cursor string) (page ListPage, err error) {
	q := f.query(limit)
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	resp, err := l.open(ctx, summaryPolicy, q)
	if err != nil {
		return page, err
	}
	defer drain(resp.Body)
	page.Now = clockOf(resp)
	b, err := io.ReadAll(io.LimitReader(resp.Body, mostPage+1))
	if err == nil && len(b) > mostPage {
		err = fmt.Errorf("a page of more than %d bytes", mostPage)
	}
	if err == nil {
		err = json.Unmarshal(b, &page.SummaryPage)
	}
	if err != nil {
		return page, fmt.Errorf("list of threads: %w", err)
	}
	if page.Threads == nil {
		return page, fmt.Errorf("%w: it answers %.80q", ErrNoList, b)
	}
	return page, nil
}

// mostPage bounds a page, and an event, in bytes.
const mostPage = 8 << 20

// Pages returns all pages of the list, newest start first, until the first error. A thread whose next run begins
// meanwhile may be missing.
func (l List) Pages(ctx context.Context, f Filter) iter.Seq2[ListPage, error] {
	return func(yield func(ListPage, error) bool) {
		for cursor := ""; ; {
			page, err := l.Page(ctx, f, ListLimit, cursor)
			if !yield(page, err) || err != nil || page.Cursor == "" || page.Cursor == cursor {
				return
			}
			cursor = page.Cursor
		}
	}
}

// query returns the filter as the list's query.
func (f Filter) query(limit int) url.Values {
	q := url.Values{}
	if len(f.Statuses) > 0 {
		q.Set("status", strings.Join(f.Statuses, ","))
	}
	if len(f.Harnesses) > 0 {
		q.Set("harness", strings.Join(f.Harnesses, ","))
	}
	if !f.Since.IsZero() {
		q.Set("since", thread.Stamp(f.Since))
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return q
}

// open requests the list. The caller closes the answer's body.
func (l List) open(ctx context.Context, p policy, q url.Values) (*http.Response, error) {
	more := ""
	if len(q) > 0 {
		more = "?" + q.Encode()
	}
	resp, err := l.c.summaries(ctx, p, more)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer drain(resp.Body)
	if err = statusError(resp); lacksSummaries(err) || statusOf(err) == http.StatusNotFound {
		err = fmt.Errorf("%w: %w", ErrNoList, err)
	}
	return nil, err
}

// Watch follows the list until ctx is done (nil). It passes the first page of at most limit threads to page, and then
// each thread that changes to change, whatever its status is now. A connection lasts about a minute; with each new one
// page gets the page anew. Watch waits for a server that is away. It ends with an error of page or change, with
// ErrNoList, and where the server refuses the token or the query.
func (l List) Watch(
	ctx context.Context, f Filter, limit int, page func(ListPage) error, change func(Change) error,
) error {
	q := f.query(limit)
	q.Set("live", "sse")
	away := quickPoll
	for ctx.Err() == nil {
		w := &watching{page: page, change: change}
		err := w.connect(ctx, l, q)
		switch {
		case ctx.Err() != nil:
			return nil
		case w.own != nil:
			return w.own
		case errors.Is(err, ErrNoList), err != nil && Final(err):
			return err
		case w.upToDate: // the server has served it, and has ended the connection
			away = quickPoll
			pause.For(ctx, firstWait)
		default:
			pause.For(ctx, away)
			away = min(2*away, slowPoll)
		}
	}
	return nil
}

// watchIdle is the silence of the server after which a connection is given up. It sends something every 15 s.
const watchIdle = time.Minute

// watching is one connection of a Watch.
type watching struct {
	page   func(ListPage) error
	change func(Change) error

	first    ListPage // the page so far
	upToDate bool     // page has it
	own      error    // of page or change
}

// connect reads the events of one connection.
func (w *watching) connect(ctx context.Context, l List, q url.Values) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(watchIdle, func() { cancel(silentError{watchIdle}) })
	defer idle.Stop()
	resp, err := l.open(ctx, watchPolicy, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // read only: nothing to lose
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return fmt.Errorf("%w: it answers with %.80q, want text/event-stream", ErrNoList, kind)
	}
	w.first = ListPage{SummaryPage: thread.SummaryPage{Threads: []thread.Summary{}}, Now: clockOf(resp)}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, mostPage)
	var kind string
	for lines.Scan() {
		idle.Reset(watchIdle)
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			kind = string(value)
		case "data":
			if err := w.event(kind, value); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// event takes one event.
func (w *watching) event(kind string, data []byte) error {
	var v thread.Summary
	switch kind {
	case "thread", "deleted":
		if err := json.Unmarshal(data, &v); err != nil {
			return fmt.Errorf("list of threads: %w", err)
		}
	case "control":
		if w.upToDate {
			return nil
		}
		w.upToDate = true
		slices.Reverse(w.first.Threads) // the oldest start came first
		w.own = w.page(w.first)
		w.first.Threads = nil
		return w.own
	default:
		return nil // of a newer server
	}
	switch {
	case w.upToDate:
		w.own = w.change(Change{Summary: v, Deleted: kind == "deleted"})
	case kind == "thread" && len(w.first.Threads) < ListLimit:
		w.first.Threads = append(w.first.Threads, v)
	}
	return w.own
}
