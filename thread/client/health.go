package client

import (
	"bufio"
	"cmp"
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

// Health is a thread server's report on itself. An older server, and a proxy, report their status alone: the other
// fields are zero.
type Health struct {
	Status        string    `json:"status"`        // ok
	Version       string    `json:"version"`       // of the server's program
	Installation  string    `json:"installation"`  // the id of the server's log, as of all servers in front of that log
	WritableSince time.Time `json:"writableSince"` // the log has taken entries since then, by the server's clock
}

// healthTimeout bounds one question.
const healthTimeout = 10 * time.Second

// mostWord bounds the status of a server that answers with a word, in bytes.
const mostWord = 16

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
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return Health{}, fmt.Errorf("health of the thread server: %w", err)
	}
	var h Health
	if json.Unmarshal(b, &h) != nil {
		word := strings.TrimSpace(string(b)) // of an older server
		return Health{Status: word[:min(len(word), mostWord)]}, nil
	}
	return h, nil
}

// errForeign is the error of an answer that no thread server gives.
var errForeign = errors.New("no thread server answers like this: another server has the address, or a proxy or " +
	"firewall is in between")

// Reach asks for the tail of the thread, in up to three tries of 10 s. It returns nil where a thread server answers,
// and takes the token. A thread that was never written is no error, and neither is a server that is busy. Health does
// not suffice: a proxy in front of the server may answer that on its own.
func (c *Client) Reach(ctx context.Context) error {
	resp, err := c.request(ctx, reachPolicy, http.MethodGet, "?offset=now", nil)
	if err != nil {
		return err
	}
	defer drain(resp.Body)
	if resp.StatusCode/100 == 2 {
		return entriesOnly(resp)
	}
	err = statusError(resp)
	switch code := codeOf(err); {
	case Redirected(err):
		return err
	case code == "":
		return fmt.Errorf("%w: %w", errForeign, err)
	case code == codeNotFound, resp.StatusCode == http.StatusTooManyRequests,
		resp.StatusCode == http.StatusServiceUnavailable:
		return nil
	}
	return err
}

// entriesOnly returns an error for a success that is not a thread server's: it has neither an offset nor, as an older
// server's, entries.
func entriesOnly(resp *http.Response) error {
	if resp.Header.Get(headerNext) != "" {
		return nil
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	if lines.Scan() {
		if _, err := thread.ParseStored(lines.Bytes()); err == nil {
			return nil
		}
	}
	return cmp.Or(lines.Err(), errForeign)
}
