package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// ErrNoSummary is the error of a server that has no summaries: an older one, or one whose index is not ready.
var ErrNoSummary = errors.New("the thread server has no summary of the thread")

// Summary returns the thread's summary as it is now, and the server's clock, to the second; the zero time where the
// answer has none. A thread that was never written is an error for NotFound. ErrNoSummary: read the thread.
func (c *Client) Summary(ctx context.Context) (v thread.Summary, now time.Time, err error) {
	return c.summaryOf(ctx, c.Thread)
}

func (c *Client) summaryOf(ctx context.Context, id string) (v thread.Summary, now time.Time, err error) {
	resp, err := c.summaries(ctx, summaryPolicy, "/"+id)
	if err != nil {
		return v, now, err
	}
	defer drain(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err := statusError(resp)
		if lacksSummaries(err) || statusOf(err) == http.StatusServiceUnavailable {
			err = fmt.Errorf("%w: %w", ErrNoSummary, err)
		}
		return v, now, err
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		return v, now, fmt.Errorf("summary of thread %s: %w", id, err)
	}
	if v.ID != id || v.Status == "" {
		return v, now, fmt.Errorf("%w: it answers %.80q", ErrNoSummary, b)
	}
	return v, clockOf(resp), nil
}

// summaries sends a GET request below /api/threads. The caller closes the answer's body.
func (c *Client) summaries(ctx context.Context, p policy, more string) (*http.Response, error) {
	token, err := c.current()
	if err != nil {
		return nil, err
	}
	at := strings.TrimSuffix(c.Base, "/api/stream") + "/api/threads" + more
	return c.send(ctx, p, http.MethodGet, at, nil, token, c.seen)
}

// lacksSummaries reports whether err is the answer of a server without summaries: an older one, or none at all.
func lacksSummaries(err error) bool {
	switch statusOf(err) {
	case http.StatusNotFound:
		return codeOf(err) != codeNotFound
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return false
}

// clockOf returns the server's clock when it answered, to the second; the zero time where the answer has none.
func clockOf(resp *http.Response) time.Time {
	now, _ := http.ParseTime(resp.Header.Get("Date")) // the zero time for any other value
	return now
}
