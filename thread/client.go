package thread

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// Client posts to one thread and reads it. It is safe for concurrent use. Every call ends when its context does.
type Client struct {
	Base   string                 // as BaseURL gives it
	Thread string                 // the thread's id
	Token  func() (string, error) // a write token, asked for each call
	Renew  string                 // a token to get fresh write tokens with; "" for none
	Log    *slog.Logger           // nil for none. A failure is said once, and its end once
	HTTP   *http.Client           // nil for one of the Client's own. Its Timeout is not used

	once    sync.Once
	hc      *http.Client
	single  atomic.Bool // the server takes no arrays
	outage  outage
	renewal renewal
}

// StatusError is an answer of the server that is no success.
type StatusError struct {
	Status  int
	Code    string     // the server's word for it, "" where it gave none
	Message string     // the server's sentence, or the beginning of what it said instead
	Entries []BadEntry // those that it refuses, where it is about entries
}

// BadEntry is an entry that the server refuses, and why.
type BadEntry struct {
	Index  int    `json:"index"` // in the array that was posted
	ID     string `json:"id"`
	Reason string `json:"reason"`
	Status int    `json:"-"` // 400, 409 or 413: what the server answered for this one
}

func (e *StatusError) Error() string {
	name := http.StatusText(e.Status)
	switch e.Status {
	case http.StatusUnauthorized:
		name = "the token is missing, wrong or expired"
	case http.StatusForbidden:
		name = "the token does not allow this"
	case http.StatusConflict:
		name = "an id is taken by another payload"
	}
	s := fmt.Sprintf("%d %s", e.Status, name)
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Refused reports whether err says that the token is not good for the call: 401 or 403.
func Refused(err error) bool {
	var se *StatusError
	return errors.As(err, &se) && (se.Status == http.StatusUnauthorized || se.Status == http.StatusForbidden)
}

// NotFound reports whether err says that the thread was never written.
func NotFound(err error) bool {
	var se *StatusError
	return errors.As(err, &se) && se.Status == http.StatusNotFound
}

// Ack is what a server says of entries that it has taken. One that takes single entries only doesn't say all of it.
type Ack struct {
	Next       string // the offset behind them; "" where it is not known
	Duplicates int    // how many of them were there already
}

// Append posts entries, all or none of them, in their order. It returns when they are durable. Entries that the server refuses come back as a *StatusError
// that lists them: 409 says that the id is there with another payload, 400 and 413 that the entry is bad or too large. In that case none was
// appended, but for a server that takes no arrays, which has all but those. Any failed call may have been applied all the same; repeating is harmless.
func (c *Client) Append(ctx context.Context, entries []Entry) (Ack, error) {
	return c.post(ctx, appendPolicy, entries)
}

// Heartbeat posts one entry and doesn't insist.
func (c *Client) Heartbeat(ctx context.Context, e Entry) error {
	_, err := c.post(ctx, beatPolicy, []Entry{e})
	return err
}

// Finish posts entries like Append, and goes on trying until ctx ends, as long as there is hope.
func (c *Client) Finish(ctx context.Context, entries []Entry) error {
	_, err := c.post(ctx, finishPolicy, entries)
	return err
}

func (c *Client) post(ctx context.Context, p policy, entries []Entry) (Ack, error) {
	if len(entries) == 0 {
		return Ack{}, nil
	}
	if len(entries) == 1 {
		return c.do(ctx, p, entries[0].AppendJSON(nil))
	}
	if !c.single.Load() {
		ack, err := c.do(ctx, p, arrayOf(entries))
		if !noArrays(err) {
			return ack, err
		}
		if _, one := c.do(ctx, p, entries[0].AppendJSON(nil)); one != nil && !listed(one) {
			return ack, err // it is not the array that the server minds
		}
		c.single.Store(true)
		c.log().Info("the thread server takes single entries only")
	}
	// One by one. What is refused is collected, and the others go on.
	bad := &StatusError{}
	for i, e := range entries {
		_, err := c.do(ctx, p, e.AppendJSON(nil))
		if err == nil {
			continue
		}
		var se *StatusError
		if !errors.As(err, &se) || !slices.Contains([]int{400, 409, 413}, se.Status) {
			return Ack{}, err
		}
		if bad.Entries == nil {
			bad.Status, bad.Code, bad.Message = se.Status, se.Code, se.Message
		}
		bad.Entries = append(bad.Entries, BadEntry{Index: i, ID: e.ID, Reason: se.Message, Status: se.Status})
	}
	if bad.Entries != nil {
		return Ack{}, bad
	}
	return Ack{}, nil
}

func arrayOf(entries []Entry) []byte {
	size := 2
	for _, e := range entries {
		size += len(e.Payload) + len(e.ID) + len(e.AuthorID) + 80
	}
	body := append(make([]byte, 0, size), '[')
	for i, e := range entries {
		if i > 0 {
			body = append(body, ',')
		}
		body = e.AppendJSON(body)
	}
	return append(body, ']')
}

// noArrays reports whether an array was answered as by a server that knows single entries only.
func noArrays(err error) bool {
	var se *StatusError
	return errors.As(err, &se) && len(se.Entries) == 0 &&
		slices.Contains([]int{400, 404, 405, 415, 422, 501}, se.Status)
}

func listed(err error) bool {
	var se *StatusError
	return errors.As(err, &se) && (se.Status == http.StatusConflict || se.Status == http.StatusRequestEntityTooLarge)
}

// do posts body. Any 2xx is a success.
func (c *Client) do(ctx context.Context, p policy, body []byte) (Ack, error) {
	resp, err := c.request(ctx, p, http.MethodPost, "", body)
	if err != nil {
		return Ack{}, err
	}
	defer drain(resp.Body)
	if resp.StatusCode/100 != 2 {
		return Ack{}, statusError(resp)
	}
	var answer struct {
		NextOffset string `json:"nextOffset"`
		Duplicates int    `json:"duplicates"`
	}
	// An older server answers with anything. What it doesn't say is not known.
	_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&answer)
	return Ack{Next: answer.NextOffset, Duplicates: answer.Duplicates}, nil
}

// request sends one request with p's patience, and once more with another token where the server refuses this one. The caller closes the answer's body.
func (c *Client) request(ctx context.Context, p policy, method, query string, body []byte) (*http.Response, error) {
	token, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, p, method, query, body, token)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	fresh, ok := c.another(ctx, token)
	if !ok {
		return resp, nil
	}
	drain(resp.Body)
	return c.send(ctx, p, method, query, body, fresh)
}

// send sends one request with p's patience. more is what follows the thread's address.
func (c *Client) send(ctx context.Context, p policy, method, more string, body []byte, token string) (*http.Response, error) {
	c.once.Do(func() {
		if c.hc = c.HTTP; c.hc == nil {
			c.hc = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
		}
	})
	var content any
	if body != nil {
		content = body
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, method, c.Base+"/"+StreamName(c.Thread)+more, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := retrying(c.hc, p, c.seen).Do(req)
	if err != nil {
		if resp != nil { // the last one before ctx ended: its body is still open
			drain(resp.Body)
		}
		return nil, err
	}
	c.heard(resp)
	return resp, nil
}

// ChatText is the text of the chat with this id, "" where the thread has none.
func (c *Client) ChatText(ctx context.Context, id string) (text string, err error) {
	_, err = c.Read(ctx, "0", false, func(e Entry) error {
		if e.ID != id {
			return nil
		}
		var chat Chat
		if err := json.Unmarshal(e.Payload, &chat); err != nil {
			return fmt.Errorf("entry %s: %w", id, err)
		}
		text = chat.Text
		return nil
	})
	return text, err
}

// drain reads a little of what is left, so that the connection can be used again.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10) // an error only costs the connection
	_ = body.Close()                          // nothing was written through it
}

// statusError reads the answer's error, whatever shape it has.
func statusError(resp *http.Response) error {
	se := &StatusError{Status: resp.StatusCode}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // what came of it is said
	var answer struct {
		Error struct {
			Code    string     `json:"code"`
			Message string     `json:"message"`
			Entries []BadEntry `json:"entries"`
		} `json:"error"`
	}
	if json.Unmarshal(b, &answer) == nil && (answer.Error.Message != "" || answer.Error.Code != "") {
		se.Code, se.Message, se.Entries = answer.Error.Code, answer.Error.Message, answer.Error.Entries
		for i := range se.Entries {
			se.Entries[i].Status = se.Status
		}
		return se
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	se.Message = strings.ToValidUTF8(line[:min(len(line), 200)], "\uFFFD")
	return se
}

func (c *Client) log() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}

// outage is a time in which the server could not be reached or could not answer.
type outage struct {
	mu    sync.Mutex
	since time.Time // zero where there is none
	tries int
}

// seen says the first failure of a series and its end.
func (c *Client) seen(resp *http.Response, err error) {
	c.outage.mu.Lock()
	defer c.outage.mu.Unlock()
	o := &c.outage
	if err != nil || again(resp.StatusCode) {
		if o.tries++; o.tries == 1 {
			o.since = time.Now()
			if err == nil {
				err = errors.New(resp.Status)
			}
			var ue *url.Error
			if errors.As(err, &ue) {
				err = ue.Err // the address is in the record already
			}
			c.log().Warn("the thread server does not answer; trying on", "url", c.Base, "error", err)
		}
		return
	}
	if o.tries > 0 {
		c.log().Info("the thread server answers again", "failed_tries", o.tries, "after", time.Since(o.since).Round(time.Millisecond))
		o.tries = 0
	}
}

// NextOffset and whether the tail was reached come with every read.
const (
	headerNext     = "Stream-Next-Offset"
	headerUpToDate = "Stream-Up-To-Date"
)

var errIdle = fmt.Errorf("nothing came for %v", readIdle)

// Page is what a read came to.
type Page struct {
	Next     string    // the offset to read on from; "" where the server gives none
	UpToDate bool      // the server says that this was all there is
	Now      time.Time // the server's clock when it answered; zero where it doesn't say
}

// Read passes the thread's entries from offset on to f, in order, to the tail. Offset is "0" for the start or a Page's Next. With wait the server is
// asked to hold the answer until there is something, or until it would rather not. It stops at the first error of f and returns it.
// A thread that was never written is an error that NotFound knows.
func (c *Client) Read(ctx context.Context, offset string, wait bool, f func(Entry) error) (Page, error) {
	// A connection that is open and dead is given up after a while without anything. A server that was asked to wait answers sooner.
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(readIdle, func() { cancel(errIdle) })
	defer idle.Stop()
	page, err := c.read(limited, offset, wait, func(e Entry) error {
		idle.Reset(readIdle)
		return f(e)
	})
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = errIdle
	}
	return page, err
}

func (c *Client) read(ctx context.Context, offset string, wait bool, f func(Entry) error) (Page, error) {
	query := "?offset=" + url.QueryEscape(offset)
	if wait {
		query += "&live=long-poll"
	}
	resp, err := c.request(ctx, readPolicy, http.MethodGet, query, nil)
	if err != nil {
		return Page{}, err
	}
	defer drain(resp.Body)
	if resp.StatusCode/100 != 2 {
		return Page{}, statusError(resp)
	}
	page := Page{Next: resp.Header.Get(headerNext), UpToDate: resp.Header.Get(headerUpToDate) == "true"}
	page.Now, _ = http.ParseTime(resp.Header.Get("Date")) // one that is none is the zero time
	if resp.StatusCode == http.StatusNoContent {
		return page, nil
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, MaxEntry+64<<10) // the server adds to what was posted
	n := 0
	for ; lines.Scan(); n++ {
		e, err := parseRead(lines.Bytes())
		if err != nil {
			// The last line of a connection that broke is only a part, and why it broke says more.
			return Page{}, fmt.Errorf("read entry %d after offset %s: %w", n, offset, cmp.Or(lines.Err(), err))
		}
		if err := f(e); err != nil {
			return Page{}, err
		}
	}
	if err := lines.Err(); err != nil {
		return Page{}, fmt.Errorf("read entry %d after offset %s: %w", n, offset, err)
	}
	return page, nil
}
