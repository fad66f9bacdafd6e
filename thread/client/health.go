package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Health is what a thread server reports of itself. An older server, and a proxy, report nothing: the fields are zero.
type Health struct {
	Installation  string    // the id of the server's log: all servers in front of one log have the same
	WritableSince time.Time // the log has taken entries since then, by the server's clock
}

// healthTimeout bounds one question.
const healthTimeout = 10 * time.Second

// Health asks the server for its health, once. An answer that is no success, a redirect among them, is a *StatusError;
// a page of HTML is an error.
func (c *Client) Health(ctx context.Context) (Health, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.Base, "/api/stream")+"/healthz",
		nil)
	if err != nil {
		return Health{}, err
	}
	one := http.Client{CheckRedirect: noRedirect, Transport: pageless{}}
	if c.HTTP != nil {
		one.Transport = pageless{c.HTTP.Transport}
	}
	resp, err := one.Do(req)
	if err != nil {
		return Health{}, fmt.Errorf("health of the thread server: %w", err)
	}
	defer drain(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return Health{}, fmt.Errorf("health of the thread server: %w", statusError(resp))
	}
	var h struct {
		Installation  string    `json:"installation"`
		WritableSince time.Time `json:"writableSince"`
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return Health{}, fmt.Errorf("health of the thread server: %w", err)
	}
	if json.Unmarshal(b, &h) != nil {
		return Health{}, nil // an older server answers with a word
	}
	return Health{Installation: h.Installation, WritableSince: h.WritableSince}, nil
}
