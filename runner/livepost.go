package runner

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"arbe.0sk.ar/runner/runner/live"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// postRecord is the record of an entry to post once the lines before line are on the thread.
func postRecord(e thread.Entry, line int) live.Record {
	return live.Record{Op: live.OpPost, ID: e.ID, Line: line, Entry: e.AppendJSON(nil)}
}

// postOn posts the conversation's entries as they come, until ctx is done.
func (c *conversation) postOn(ctx context.Context) error {
	logged := ""
	for wait := time.Duration(0); ; {
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.posts:
		case <-timer:
		}
		if c.run.awaitOpen(ctx) != nil {
			return nil
		}
		wait = 0
		err := c.post(ctx, c.run.trail.Next())
		switch {
		case errors.Is(err, errLinesFirst):
			wait = postPoll
		case err != nil && ctx.Err() == nil:
			if wait = retryPost; err.Error() != logged {
				c.run.Log.Warn("post an entry of the live run; retrying", "error", err)
				logged = err.Error()
			}
		}
	}
}

// Waits before the next try to post.
const (
	postPoll  = 50 * time.Millisecond // where lines come first
	retryPost = 2 * time.Second       // after an error
)

// errLinesFirst: lines come before the next entry.
var errLinesFirst = errors.New("lines are to be posted first")

// postAll posts all that is left. The run's lines are on the thread.
func (c *conversation) postAll(ctx context.Context) error {
	if c == nil {
		return nil
	}
	return c.post(ctx, int(^uint(0)>>1))
}

// post posts the entries whose lines are before posted.
func (c *conversation) post(ctx context.Context, posted int) error {
	var posts []live.Post
	c.journal.view(func(l *live.Ledger) { posts = slices.Clone(l.Posts) })
	for _, p := range posts {
		if p.Line > posted {
			return errLinesFirst
		}
		var e thread.Entry
		if err := json.Unmarshal(p.Entry, &e); err != nil {
			return err
		}
		_, err := c.run.post(ctx, []thread.Entry{e})
		var se *client.StatusError
		if errors.As(err, &se) {
			switch se.Status {
			case http.StatusConflict: // it is there, from a worker before
				err = nil
			case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
				c.run.Log.Warn("the server refused an entry of the live run", "id", e.ID, "error", err)
				err = nil
			}
		}
		if err != nil {
			return err
		}
		if err := c.journal.note(live.Record{Op: live.OpPosted, ID: p.ID}); err != nil {
			c.run.Log.Warn("record a posted entry", "error", err)
		}
	}
	if err := c.journal.compact(); err != nil {
		c.run.Log.Warn("shorten the journal", "error", err)
	}
	return nil
}
