package thread

import (
	"context"
	"errors"
	"io"
	"net/url"
	"slices"
	"time"
)

// Entry returns the thread's entry with this id. ok is false where the thread has none. For a thread that was never
// written NotFound reports true of the error. The thread of an older server, which gives no single entries, is read up
// to the entry.
func (c *Client) Entry(ctx context.Context, id string) (e Entry, ok bool, err error) {
	if !c.scanned.Load() {
		err = c.Only().reading("0", nil).attentive(ctx, readIdle, func(ctx context.Context, body *patientBody) error {
			_, answer, err := c.open(ctx, "/entries/"+url.PathEscape(id))
			if err != nil {
				return err
			}
			return body.entries(answer, func(first Entry) error { e = first; return ErrStop })
		})
		switch {
		case errors.Is(err, ErrStop) && e.ID == id:
			return e, true, nil
		case err == nil || errors.Is(err, ErrStop): // the answer to another request
		case codeOf(err) == codeRemoved:
			return Entry{}, false, nil
		case !NotFound(err) && !unwaited(err):
			return Entry{}, false, err
		}
	}
	return c.scan(ctx, id)
}

// scan reads the thread up to the entry with this id. A server that gives a piece of one entry has no more to say on an
// id than its answer to Entry, so scan reads no further.
func (c *Client) scan(ctx context.Context, id string) (found Entry, ok bool, err error) {
	n := 0
	r := c.Only().reading("0", func(e Entry) error {
		if n++; e.ID != id {
			return nil
		}
		found, ok = e, true
		return ErrStop
	})
	r.limit = 1
	page, err := r.answer(ctx, r.silence)
	switch {
	case ok:
		return found, true, nil
	case err != nil && final(err):
		return Entry{}, false, err
	case err == nil && (r.next(page) || n <= 1):
		return Entry{}, false, nil
	case err == nil:
		c.scanned.Store(true)
	}
	if _, err = r.toTail(ctx); errors.Is(err, ErrStop) {
		err = nil
	}
	return found, ok, err
}

// EntryWithin is Entry, and tries again where the server can't be reached or fails, for the time patience.
func (c *Client) EntryWithin(ctx context.Context, id string, patience time.Duration) (e Entry, ok bool, err error) {
	for began, wait := time.Now(), firstWait; ; wait = min(2*wait, time.Second) {
		limited, cancel := context.WithDeadlineCause(ctx, began.Add(patience), silentError{patience})
		e, ok, err = c.Entry(limited, id)
		if err != nil && ctx.Err() == nil && limited.Err() != nil {
			err = context.Cause(limited)
		}
		cancel()
		left := patience - time.Since(began)
		if err == nil || final(err) || ctx.Err() != nil || left <= 0 {
			return e, ok, err
		}
		pause(ctx, min(wait, left))
	}
}

// The first and the largest piece of ReadBack, in entries. What is sought is mostly near the end.
const (
	firstBack = 16
	mostBack  = pieceEntries
)

// ReadBack passes the thread's entries before an offset, or before its tail ("now"), to f, the newest first, until f
// returns an error, which ReadBack returns, but for ErrStop. next is the place of before, from which a Follow
// continues; "" where the server can't read backwards: f has got nothing then.
func (c *Client) ReadBack(ctx context.Context, before string, f func(Entry) error) (next string, err error) {
	return c.Only().ReadBack(ctx, before, f)
}

// ReadBack is Client.ReadBack for the selected entries.
func (s Selection) ReadBack(ctx context.Context, before string, f func(Entry) error) (next string, err error) {
	for limit := firstBack; ; limit = min(4*limit, mostBack) {
		piece, page, err := s.pieceBefore(ctx, before, limit)
		if next == "" && (unwaited(err) && codeOf(err) != codeBeyond || err == nil && page.prev == "") {
			return "", nil
		}
		if err != nil {
			return next, err
		}
		if next == "" {
			next = page.Next
		}
		for _, e := range slices.Backward(piece) {
			if err := f(e); errors.Is(err, ErrStop) {
				return next, nil
			} else if err != nil {
				return next, err
			}
		}
		if page.prev == before || page.prev == "" || page.prev == page.Next {
			return next, nil
		}
		before = page.prev
	}
}

// pieceBefore reads the last of the selected entries before an offset. It reads none from a server that ignores the
// offset.
func (s Selection) pieceBefore(ctx context.Context, before string, limit int) (piece []Entry, page Page, err error) {
	err = s.reading(before, nil).attentive(ctx, readIdle, func(ctx context.Context, body *patientBody) error {
		var answer io.ReadCloser
		page, answer, err = s.c.open(ctx, "?before="+url.QueryEscape(before)+s.piece(limit))
		if err != nil {
			return err
		}
		if page.prev == "" {
			return answer.Close()
		}
		return body.entries(answer, func(e Entry) error {
			if s.has(e) {
				piece = append(piece, e)
			}
			return nil
		})
	})
	return piece, page, err
}
