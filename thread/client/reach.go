package client

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"arbe.0sk.ar/runner/thread"
)

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
