package thread

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// The offset behind what was read comes with every read, and whether that is the thread's end.
const (
	headerNext     = "Stream-Next-Offset"
	headerUpToDate = "Stream-Up-To-Date"
)

// Page is the end of a read.
type Page struct {
	Next     string    // the offset behind the read entries; "" where the server returns none
	UpToDate bool      // the server reported that this is the tail
	Now      time.Time // the server's clock when it answered; zero where the answer has none
}

// silentError ends a read in which the server was silent for too long.
type silentError struct{ silence time.Duration }

func (e silentError) Error() string {
	return fmt.Sprintf("nothing came for %v", e.silence.Round(time.Millisecond))
}

// Read passes the thread's entries from offset on to f, in order, to the tail. Offset is "0" for the start or a
// Page's Next. With wait it is a long-poll: the server holds the answer until there is an entry, or for as long as it
// likes. Read returns the first error of f. It resumes a read that breaks off, as long as each try returns entries. Its
// time is not limited; it fails where the server sends no byte for two minutes. For a thread that was never written
// NotFound reports true of the error.
func (c *Client) Read(ctx context.Context, offset string, wait bool, f func(Entry) error) (Page, error) {
	r := reading{c: c, offset: offset, wait: wait, silence: readIdle, f: f}
	for {
		before := r.total
		page, err := r.toTail(ctx, readIdle)
		if err == nil || r.own != nil || r.total == before || ctx.Err() != nil || final(err) {
			return page, err
		}
		pause(ctx, firstWait)
	}
}

// ReadAll passes all of the thread's entries to f, in order, to the tail. It resumes where the server can't be reached,
// fails or breaks off, until nothing has come for the time patience. Its time is not limited otherwise. ReadAll returns
// the first error of f, and at once any answer that another try would not change, a 404 among them.
func (c *Client) ReadAll(ctx context.Context, patience time.Duration, f func(Entry) error) error {
	r := reading{c: c, offset: "0", silence: patience, f: f, heard: time.Now()}
	for wait := firstWait; ; wait = min(2*wait, time.Second) {
		heard := r.heard
		_, err := r.toTail(ctx, patience-time.Since(r.heard))
		left := patience - time.Since(r.heard)
		if err == nil || r.own != nil || ctx.Err() != nil || final(err) || left <= 0 {
			return err
		}
		if r.heard != heard {
			wait = firstWait
		}
		pause(ctx, min(wait, left))
	}
}

// final reports whether err is an answer that another try would not change.
func final(err error) bool {
	status := statusOf(err)
	return status != 0 && !again(status)
}

// reading is a read in progress, of several requests.
type reading struct {
	c       *Client
	f       func(Entry) error
	wait    bool
	silence time.Duration // of the server in mid-answer, after which the read fails

	offset string    // where the answer that is being read began
	passed int       // entries of that answer passed to f
	total  int       // entries passed to f
	own    error     // of f
	heard  time.Time // when something came last
}

// toTail reads answer after answer up to the tail. first is how long the first one may let its beginning wait.
func (r *reading) toTail(ctx context.Context, first time.Duration) (Page, error) {
	for {
		page, err := r.answer(ctx, first)
		if err != nil {
			return page, err
		}
		done := page.UpToDate || page.Next == "" || page.Next == r.offset
		if page.Next != "" {
			r.offset, r.passed = page.Next, 0
		}
		if done {
			return page, nil
		}
		r.wait, first = false, r.silence // there is more
	}
}

// answer reads one answer.
func (r *reading) answer(ctx context.Context, first time.Duration) (Page, error) {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(first, func() { cancel(silentError{first}) })
	defer timer.Stop()
	page, err := r.receive(limited, func(b io.ReadCloser) io.Reader { return &patientBody{b, r, timer, cancel} })
	var silent silentError
	if err != nil && ctx.Err() == nil && errors.As(context.Cause(limited), &silent) {
		err = silent
	}
	return page, err
}

func (r *reading) receive(ctx context.Context, patient func(io.ReadCloser) io.Reader) (Page, error) {
	query := "?offset=" + url.QueryEscape(r.offset)
	if r.wait {
		query += "&live=long-poll"
	}
	resp, err := r.c.request(ctx, readPolicy, http.MethodGet, query, nil)
	if err != nil {
		return Page{}, err
	}
	defer resp.Body.Close() // read only: nothing to lose
	body := patient(resp.Body)
	if resp.StatusCode/100 != 2 {
		return Page{}, statusError(resp)
	}
	page := Page{Next: resp.Header.Get(headerNext), UpToDate: resp.Header.Get(headerUpToDate) == "true"}
	page.Now, _ = http.ParseTime(resp.Header.Get("Date")) // one that is none is the zero time
	if resp.StatusCode == http.StatusNoContent {
		return page, nil
	}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLine)
	n := 0
	for ; lines.Scan(); n++ {
		e, err := parseRead(lines.Bytes())
		if err != nil {
			// The last line of a broken connection is incomplete: the connection's error is the cause.
			return Page{}, fmt.Errorf("read entry %d after offset %s: %w", n, r.offset, cmp.Or(lines.Err(), err))
		}
		if n < r.passed {
			continue // of a try before
		}
		if r.own = r.f(e); r.own != nil {
			return Page{}, r.own
		}
		r.passed, r.total = r.passed+1, r.total+1
	}
	if err := lines.Err(); err != nil {
		return Page{}, fmt.Errorf("read entry %d after offset %s: %w", n, r.offset, err)
	}
	return page, nil
}

// patientBody is an answer's body with a timeout between bytes and none for the whole. Only the time in which a Read
// waits counts.
type patientBody struct {
	body   io.Reader
	r      *reading
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func (p *patientBody) Read(b []byte) (int, error) {
	p.timer.Stop()
	timer := time.AfterFunc(p.r.silence, func() { p.cancel(silentError{p.r.silence}) })
	defer timer.Stop()
	n, err := p.body.Read(b)
	if n > 0 {
		p.r.heard = time.Now()
	}
	return n, err
}
