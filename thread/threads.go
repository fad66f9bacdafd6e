package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// ErrNoSummary is the error of a server that has no summaries: an older one, or one whose index is not ready.
var ErrNoSummary = errors.New("the thread server has no summary of the thread")

// summaryPolicy is for a thread's summary.
var summaryPolicy = policy{tries: 4, attempt: 30 * time.Second}

// Summary returns the thread's summary as it is now. A thread that was never written is an error for NotFound.
// ErrNoSummary: read the thread.
func (c *Client) Summary(ctx context.Context) (v Summary, err error) {
	token, err := c.current()
	if err != nil {
		return v, err
	}
	at := strings.TrimSuffix(c.Base, "/api/stream") + "/api/threads/" + c.Thread
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return v, err
	}
	req.URL.User = nil // it would not be sent beside a token, but shown in errors
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := retrying(c.HTTP, summaryPolicy, 0, c.seen).Do(req)
	if err != nil {
		if resp != nil {
			drain(resp.Body)
		}
		return v, err
	}
	defer drain(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err := statusError(resp)
		var se *StatusError
		if errors.As(err, &se) && (se.Status == http.StatusNotFound && se.Code != "not_found" ||
			se.Status == http.StatusMethodNotAllowed || se.Status == http.StatusNotImplemented ||
			se.Status == http.StatusServiceUnavailable) {
			err = fmt.Errorf("%w: %w", ErrNoSummary, err)
		}
		return v, err
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		return v, fmt.Errorf("summary of thread %s: %w", c.Thread, err)
	}
	if v.ID != c.Thread || v.Status == "" {
		return v, fmt.Errorf("%w: it answers %.80q", ErrNoSummary, b)
	}
	return v, nil
}
