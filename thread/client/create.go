package client

import (
	"context"
	"fmt"
	"net/http"
)

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
