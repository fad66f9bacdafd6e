package thread

import (
	"context"
	"errors"
	"io"
	"net/url"
	"slices"
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
			return body.entries(answer, func(one Entry) error { e = one; return nil })
		})
		switch {
		case err == nil && e.ID != id:
			return Entry{}, false, errors.New("the thread server answered with another entry")
		case err == nil:
			return e, true, nil
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

// ReadBack passes the thread's entries before an offset to f, the newest first, until f returns an error, which
// ReadBack returns. ok is false where the server can't read backwards; f has got nothing then.
func (c *Client) ReadBack(ctx context.Context, before string, f func(Entry) error) (ok bool, err error) {
	return c.Only().ReadBack(ctx, before, f)
}

// ReadBack is Client.ReadBack for the selected entries.
func (s Selection) ReadBack(ctx context.Context, before string, f func(Entry) error) (ok bool, err error) {
	for ; ; ok = true {
		piece, page, err := s.pieceBefore(ctx, before)
		if !ok && (unwaited(err) || err == nil && page.prev == "") {
			return false, nil
		}
		if err != nil {
			return ok, err
		}
		for _, e := range slices.Backward(piece) {
			if err := f(e); err != nil {
				return true, err
			}
		}
		if page.prev == before || page.prev == "" {
			return true, nil
		}
		before = page.prev
	}
}

// pieceBefore reads the selected entries before an offset. It reads none from a server that ignores the offset.
func (s Selection) pieceBefore(ctx context.Context, before string) (piece []Entry, page Page, err error) {
	err = s.reading(before, nil).attentive(ctx, readIdle, func(ctx context.Context, body *patientBody) error {
		var answer io.ReadCloser
		page, answer, err = s.c.open(ctx, "?before="+url.QueryEscape(before)+s.piece(pieceEntries))
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
