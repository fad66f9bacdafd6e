package client

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// The offsets around what was read come with every read, and whether its end is the thread's end.
const (
	headerNext     = "Stream-Next-Offset"
	headerPrev     = "Stream-Prev-Offset"
	headerUpToDate = "Stream-Up-To-Date"
)

// Codes of the server's errors.
const (
	codeBeyond   = "beyond_tail" // an older server answers such an offset with 400 and another code
	codeNotFound = "not_found"   // there is no such thread
	codeNoEntry  = "no_entry"    // the thread is there, and has no such entry
	codeRemoved  = "removed"     // the entry was there; the server deletes heartbeats and the like after a run
)

// mostWhole is how many reads a server may refuse in pieces and answer in whole before it is asked for no more pieces:
// one refusal may be a hiccup.
const mostWhole = 3

// pieceEntries is how many entries the client requests at once: the most that the server gives.
const pieceEntries = 1000

// Page is the end of a read.
type Page struct {
	Next     string    // the offset behind the read entries; "" where the server returns none
	UpToDate bool      // the server reported that this is the tail
	Now      time.Time // the server's clock when it answered; zero where the answer has none

	prev string // the offset before the read entries; "" where the server returns none
}

// Selection is a thread's entries of some payload types. Its methods are those of the Client. An older server sends the
// other entries, too; the Selection drops them.
type Selection struct {
	c     *Client
	types thread.Types
}

// Only returns the entries whose payload type has one of the prefixes: Only("signal.") for all signals.
func (c *Client) Only(prefixes ...string) Selection { return Selection{c, thread.Types{Of: prefixes}} }

// Without returns the entries whose payload type has none of the prefixes: Without(thread.TypeDelta) for all but the
// text of bots as it comes.
func (c *Client) Without(prefixes ...string) Selection { return c.Only().Without(prefixes...) }

// Without returns the selected entries whose payload type has none of the prefixes.
func (s Selection) Without(prefixes ...string) Selection {
	s.types.Without = prefixes
	return s
}

// Read passes the thread's entries from offset on to f, in order, to the tail. Offset is "0" for the start or a
// Page's Next. With wait it is a long-poll: the server holds the answer until there is an entry, or for as long as it
// likes. Read returns the first error of f. It requests the entries in pieces. Where a piece breaks off it continues
// behind the last entry that it received. Once it has received something it waits half a minute for a server that is
// away. Its time is not limited; it fails where the server sends no byte for two minutes. For a thread that was never
// written NotFound reports true of the error. ErrRewound means that the thread ends before offset.
func (c *Client) Read(ctx context.Context, offset string, wait bool, f func(thread.Entry) error) (Page, error) {
	return c.Only().Read(ctx, offset, wait, f)
}

// Read is Client.Read for the selected entries.
func (s Selection) Read(ctx context.Context, offset string, wait bool, f func(thread.Entry) error) (Page, error) {
	r := s.reading(offset, f)
	r.wait = wait
	return r.toTail(ctx)
}

// ReadAll passes all of the thread's entries to f, in order, to the tail. It resumes where the server can't be reached,
// fails or breaks off, until nothing new has come for the time patience. Its time is not limited otherwise. ReadAll
// returns the first error of f, and at once any answer that another try would not change, a 404 among them.
func (c *Client) ReadAll(ctx context.Context, patience time.Duration, f func(thread.Entry) error) error {
	r := c.Only().reading("0", f)
	r.silence, r.patience, r.arrived = patience, patience, time.Now()
	_, err := r.toTail(ctx)
	return err
}

// Final reports whether err is an answer that another try would not change.
func Final(err error) bool {
	status := statusOf(err)
	return status != 0 && !again(status) || errors.Is(err, ErrRewound)
}

// away reports whether an error means that the server may answer later.
func away(err error) bool { return err != nil && !Final(err) }

// silentError ends a read in which the server was silent for too long.
type silentError struct{ silence time.Duration }

func (e silentError) Error() string {
	return fmt.Sprintf("nothing came for %v", e.silence.Round(time.Millisecond))
}

// reading is a read in progress, of several requests.
type reading struct {
	Selection
	f        func(thread.Entry) error
	wait     bool          // the next request is a long-poll
	silence  time.Duration // of the server in an answer, after which the request fails
	patience time.Duration // without anything new, after which the read fails

	offset  string    // where the answer that is being read began
	limit   int       // entries of the next answer
	past    past      // entries behind offset that f has
	far     int       // bytes behind offset that came in one answer, at most
	own     error     // of f
	arrived time.Time // when something new came last; zero if nothing has come
}

func (s Selection) reading(offset string, f func(thread.Entry) error) *reading {
	return &reading{
		Selection: s, f: f, offset: offset, limit: pieceEntries, silence: readIdle, patience: readAway,
		past: past{ids: map[string]bool{}},
	}
}

// past records which entries behind an offset were passed on. They are recognized by id, since the server may have
// deleted some when they are read again. Of a server that sends more than a piece only their number is kept.
type past struct {
	ids map[string]bool // nil where only n counts
	n   int
}

// has reports whether the entry, which is the i-th behind the offset, was passed on.
func (p *past) has(i int, id string) bool {
	if p.ids == nil {
		return i < p.n
	}
	return p.ids[id]
}

// add adds the i-th entry behind the offset.
func (p *past) add(i int, id string) {
	p.n = i + 1
	if p.ids == nil {
		return
	}
	if p.ids[id] = true; len(p.ids) > pieceEntries {
		p.ids = nil
	}
}

// move is for a new offset behind n entries, of which some were new, or none.
func (p *past) move(n int, fresh bool) {
	if p.n -= n; fresh || p.n <= 0 {
		*p = past{ids: map[string]bool{}}
	}
}

// toTail reads piece after piece up to the tail.
func (r *reading) toTail(ctx context.Context) (Page, error) {
	first, wait := r.silence, firstWait
	for {
		arrived := r.arrived
		page, err := r.answer(ctx, first)
		if err == nil {
			if r.next(page) {
				return page, nil
			}
			first, wait = r.silence, firstWait
			continue
		}
		left := r.patience - time.Since(r.arrived)
		if r.own != nil || ctx.Err() != nil || Final(err) || r.arrived.IsZero() || left <= 0 {
			return page, err
		}
		if r.arrived != arrived {
			wait = firstWait
		}
		pause.For(ctx, min(wait, left))
		first, wait = min(r.silence, r.patience-time.Since(r.arrived)), min(2*wait, time.Second)
	}
}

// next moves on behind a whole answer, and reports whether it ended at the tail.
func (r *reading) next(page Page) (tail bool) {
	tail = page.UpToDate || page.Next == "" || page.Next == r.offset
	if page.Next != "" {
		r.offset, r.far = page.Next, 0
	}
	r.wait = false
	// After a break a piece grows slowly: what comes before the next break is received twice.
	r.limit = min(r.limit+r.limit/8+1, pieceEntries)
	return tail
}

// answer reads one answer. The server may let its beginning wait for the time first.
func (r *reading) answer(ctx context.Context, first time.Duration) (page Page, err error) {
	if r.wait {
		first = max(first, readIdle) // the server waits, too
	}
	err = r.attentive(ctx, first, func(ctx context.Context, body *patientBody) error {
		pieces := r.c.whole.Load() < mostWhole
		page, err = r.receive(ctx, r.query(pieces), body)
		if !pieces || !unwaited(err) || codeOf(err) == codeBeyond {
			return err
		}
		var second error // is it the limit or the types that the server refuses?
		page, second = r.receive(ctx, r.query(false), body)
		if second == nil {
			r.c.whole.Add(1)
		}
		return second
	})
	if codeOf(err) == codeBeyond || statusOf(err) == http.StatusBadRequest && !r.wait && r.offset != "0" {
		err = fmt.Errorf("%w: %w", ErrRewound, err)
	}
	return page, err
}

// attentive calls f with a context that ends when the server is silent for too long: for the time first, and then
// between two bytes of the body.
func (r *reading) attentive(
	ctx context.Context, first time.Duration, f func(context.Context, *patientBody) error,
) error {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(first, func() { cancel(silentError{first}) })
	defer timer.Stop()
	err := f(limited, &patientBody{r: r, timer: timer, cancel: cancel})
	if silent, is := errors.AsType[silentError](context.Cause(limited)); is && err != nil && ctx.Err() == nil {
		return silent
	}
	return err
}

// query returns the next request's query.
func (r *reading) query(pieces bool) string {
	query := "?offset=" + url.QueryEscape(r.offset)
	if r.wait {
		query += "&live=long-poll"
	}
	if pieces {
		query += r.piece(r.limit)
	}
	return query
}

// piece returns the part of a query that asks for at most limit of the selected entries.
func (s Selection) piece(limit int) string {
	query := "&limit=" + strconv.Itoa(limit)
	if of := s.types.Of; len(of) > 0 {
		query += "&types=" + url.QueryEscape(strings.Join(of, ","))
	}
	if without := s.types.Without; len(without) > 0 {
		query += "&without=" + url.QueryEscape(strings.Join(without, ","))
	}
	return query
}

// has reports whether the entry is one of the selected.
func (s Selection) has(e thread.Entry) bool {
	return s.types.All() || s.types.Has(thread.TypeOf(e.Payload))
}

// receive sends a request and passes on the entries of its answer that f does not have yet.
func (r *reading) receive(ctx context.Context, query string, body *patientBody) (Page, error) {
	n, fresh := 0, false
	page, answer, err := r.c.open(ctx, query)
	if err != nil {
		return page, err
	}
	err = body.entries(answer, func(e thread.Entry) error {
		i := n
		n++
		if r.past.has(i, e.ID) {
			return nil
		}
		if r.has(e) {
			if r.own = r.f(e); r.own != nil {
				return r.own
			}
		}
		fresh = true
		r.past.add(i, e.ID)
		return nil
	})
	switch {
	case r.own != nil:
		return page, r.own
	case err != nil:
		r.limit = max(1, min(n/2, r.limit)) // so that the next answer ends before it breaks
		return page, fmt.Errorf("read entry %d after offset %s: %w", n, r.offset, err)
	case page.Next != "":
		r.past.move(n, fresh)
	case n < r.past.n:
		return page, ErrRewound
	}
	r.arrived = time.Now()
	return page, nil
}

// open sends a read request. The caller closes the answer's body.
func (c *Client) open(ctx context.Context, query string) (Page, io.ReadCloser, error) {
	resp, err := c.request(ctx, readPolicy, http.MethodGet, query, nil)
	if err != nil {
		return Page{}, nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close() // read only: nothing to lose
		return Page{}, nil, statusError(resp)
	}
	page := Page{
		Next: resp.Header.Get(headerNext), UpToDate: resp.Header.Get(headerUpToDate) == "true",
		prev: resp.Header.Get(headerPrev), Now: clockOf(resp),
	}
	return page, resp.Body, nil
}

// maxLine is how long a line may be that is read from a server, in bytes. A log can hold entries from before MaxEntry
// bounded all of an entry: as large as a post was, or twice that where its characters are longer in the form that the
// log keeps.
const maxLine = 2*thread.MaxBody + 64<<10

// entries passes the entries of an answer to f, and closes it.
func (p *patientBody) entries(answer io.ReadCloser, f func(thread.Entry) error) error {
	defer answer.Close() // read only: nothing to lose
	p.body, p.n = answer, 0
	lines := bufio.NewScanner(p)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		e, err := thread.ParseStored(lines.Bytes())
		if err != nil {
			// The last line of a broken connection is incomplete: the connection's error is the cause.
			return cmp.Or(lines.Err(), err)
		}
		if err := f(e); err != nil {
			return err
		}
	}
	return lines.Err()
}

// patientBody is an answer's body with a timeout between bytes and none for the whole. Only the time in which a Read
// waits counts.
type patientBody struct {
	body   io.Reader
	n      int // bytes so far
	r      *reading
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func (p *patientBody) Read(b []byte) (int, error) {
	p.timer.Stop()
	timer := time.AfterFunc(p.r.silence, func() { p.cancel(silentError{p.r.silence}) })
	defer timer.Stop()
	n, err := p.body.Read(b)
	if p.n += n; p.n > p.r.far { // what came before, and comes again, is nothing new
		p.r.far, p.r.arrived = p.n, time.Now()
	}
	return n, err
}
