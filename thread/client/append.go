package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	"arbe.0sk.ar/runner/thread"
)

// Ack is a server's acknowledgement of entries. A server that takes single entries only leaves out fields.
type Ack struct {
	Next       string // the offset behind the entries; "" where the server returned none
	Duplicates int    // how many of the entries were on the thread before
}

// Create makes the thread, without entries; a thread that exists stays as it is. On an older server, which makes a
// thread with its first entry, Create does nothing.
func (c *Client) Create(ctx context.Context) error {
	resp, err := c.request(ctx, summaryPolicy, http.MethodPut, "", nil)
	if err != nil {
		return fmt.Errorf("create thread %s: %w", c.Thread, err)
	}
	defer drain(resp.Body)
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusMethodNotAllowed:
		return nil
	}
	return fmt.Errorf("create thread %s: %w", c.Thread, statusError(resp))
}

// Append posts entries in their order and returns when they are durable. Entries that the server refuses come back
// as a *StatusError that lists them: 409 means that the id is there with another payload, 400 and 413 that the entry
// is bad or too large. A server that lists them has then appended none. One that refuses without a list, or that
// takes no arrays, is given smaller posts until the first refused entry is found: that one is listed, the entries
// before it are appended, and those behind it are not. Any failed call may have been applied; repeating is harmless.
func (c *Client) Append(ctx context.Context, entries []thread.Entry) (Ack, error) {
	return c.post(ctx, appendPolicy, entries)
}

// AppendAtomic posts entries like Append, and all of them or none at any server: at one that takes single entries only
// it fails.
func (c *Client) AppendAtomic(ctx context.Context, entries []thread.Entry) (Ack, error) {
	return c.do(ctx, appendPolicy, arrayOf(entries))
}

// Heartbeat posts one entry, once.
func (c *Client) Heartbeat(ctx context.Context, e thread.Entry) error {
	_, err := c.post(ctx, beatPolicy, []thread.Entry{e})
	return err
}

// Finish posts entries like Append, and tries until ctx ends, except after an answer that no further try would change.
func (c *Client) Finish(ctx context.Context, entries []thread.Entry) error {
	_, err := c.post(ctx, finishPolicy, entries)
	if err == nil || ctx.Err() != nil || Final(err) {
		return err
	}
	_, err = c.post(ctx, slowFinishPolicy, entries)
	return err
}

func (c *Client) post(ctx context.Context, p policy, entries []thread.Entry) (Ack, error) {
	if len(entries) == 0 {
		return Ack{}, nil
	}
	if len(entries) == 1 {
		ack, err := c.do(ctx, p, entries[0].AppendJSON(nil))
		if answer := answerOf(err); refusesEntries(err) && !lists(err) {
			bad := thread.BadEntry{ID: entries[0].ID, Reason: answer.Message, Status: answer.Status}
			answer.Entries = []thread.BadEntry{bad}
		}
		return ack, err
	}
	if c.single.Load() {
		return c.postSingly(ctx, p, entries)
	}
	ack, err := c.do(ctx, p, arrayOf(entries))
	if err == nil || lists(err) {
		return ack, err
	}
	status := statusOf(err)
	if refusesEntries(err) {
		return c.postHalves(ctx, p, entries, status)
	}
	if !slices.Contains(noArrays, status) {
		return ack, err
	}
	if _, one := c.post(ctx, p, entries[:1]); one != nil && !lists(one) {
		return ack, err // the array is not the reason
	}
	c.takesSingles()
	return c.postSingly(ctx, p, entries)
}

// noArrays are the statuses with which a server that takes single entries only answers an array.
var noArrays = []int{
	http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType,
	http.StatusUnprocessableEntity, http.StatusNotImplemented,
}

// takesSingles notes that the server takes no arrays.
func (c *Client) takesSingles() {
	if c.single.CompareAndSwap(false, true) {
		c.log().Info("the thread server takes single entries only")
	}
}

// postSingly posts entries one by one, up to the first that is refused.
func (c *Client) postSingly(ctx context.Context, p policy, entries []thread.Entry) (Ack, error) {
	for i := range entries {
		if _, err := c.post(ctx, p, entries[i:i+1]); err != nil {
			return Ack{}, shift(err, i)
		}
	}
	return Ack{}, nil
}

// postHalves posts entries that were refused together, by an answer that does not list the bad ones.
func (c *Client) postHalves(ctx context.Context, p policy, entries []thread.Entry, status int) (Ack, error) {
	mid := len(entries) / 2
	first, err := c.post(ctx, p, entries[:mid])
	if err != nil {
		return Ack{}, err
	}
	second, err := c.post(ctx, p, entries[mid:])
	if err != nil {
		return Ack{}, shift(err, mid)
	}
	if len(entries) == 2 && status == http.StatusBadRequest {
		c.takesSingles() // each is good alone, and the two are not
	}
	return Ack{Next: second.Next, Duplicates: first.Duplicates + second.Duplicates}, nil
}

// shift moves the indexes of an error's entries by what was posted before them.
func shift(err error, by int) error {
	entries := answerOf(err).Entries
	for i := range entries {
		entries[i].Index += by
	}
	return err
}

func arrayOf(entries []thread.Entry) []byte {
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

// do posts body. Any 2xx is a success, but for a page of HTML.
func (c *Client) do(ctx context.Context, p policy, body []byte) (Ack, error) {
	resp, err := c.request(ctx, p, http.MethodPost, "", body)
	if err != nil {
		return Ack{}, err
	}
	defer drain(resp.Body)
	if resp.StatusCode/100 != 2 {
		return Ack{}, statusError(resp)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return Ack{}, fmt.Errorf("the answer broke off: %w", err)
	}
	var answer struct {
		NextOffset string `json:"nextOffset"`
		Duplicates int    `json:"duplicates"`
	}
	_ = json.Unmarshal(b, &answer) // an older server may answer anything: the fields stay empty
	return Ack{Next: answer.NextOffset, Duplicates: answer.Duplicates}, nil
}
