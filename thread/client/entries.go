package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/url"
	"slices"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// Entry returns the thread's entry with this id. ok is false where the thread has none. For a thread that was never
// written NotFound reports true of the error. The thread of an older server, which gives no single entries, is read up
// to the entry.
func (c *Client) Entry(ctx context.Context, id string) (e thread.Entry, ok bool, err error) {
	return c.lookup(id).entry(ctx, readIdle)
}

// EntryWithin is Entry, and tries again where the server can't be reached or fails, until nothing has come for the time
// patience.
func (c *Client) EntryWithin(
	ctx context.Context, id string, patience time.Duration,
) (e thread.Entry, ok bool, err error) {
	arrived := time.Now()
	for wait := firstWait; ; wait = min(2*wait, time.Second) {
		l := c.lookup(id)
		l.silence, l.patience, l.arrived = patience, patience, arrived
		e, ok, err = l.entry(ctx, patience-time.Since(arrived))
		arrived = l.arrived
		left := patience - time.Since(arrived)
		if err == nil || Final(err) || ctx.Err() != nil || left <= 0 {
			return e, ok, err
		}
		pause.For(ctx, min(wait, left))
	}
}

// lookup is a search for one entry.
type lookup struct {
	*reading
	id    string
	n     int // entries of the scan
	found thread.Entry
}

func (c *Client) lookup(id string) *lookup {
	l := &lookup{id: id}
	l.reading = c.Only().reading("0", l.add)
	return l
}

// add takes the next entry of an answer.
func (l *lookup) add(e thread.Entry) error {
	if l.n++; e.ID != l.id {
		return nil
	}
	l.found = e
	return ErrStop
}

// entry asks for the entry by its id, or scans the thread. The server may let the beginning of its first answer wait
// for the time first.
func (l *lookup) entry(ctx context.Context, first time.Duration) (e thread.Entry, ok bool, err error) {
	if !l.c.scanned.Load() {
		err = l.attentive(ctx, first, func(ctx context.Context, body *patientBody) error {
			_, answer, err := l.c.open(ctx, "/entries/"+url.PathEscape(l.id))
			if err != nil {
				return err
			}
			return body.entries(answer, func(first thread.Entry) error { e = first; return ErrStop })
		})
		switch {
		case errors.Is(err, ErrStop) && e.ID == l.id:
			return e, true, nil
		case err == nil || errors.Is(err, ErrStop): // the answer to another request
		case codeOf(err) == codeRemoved || codeOf(err) == codeNoEntry:
			return thread.Entry{}, false, nil
		case !NotFound(err) && !unwaited(err):
			return thread.Entry{}, false, err
		}
	}
	l.far = 0
	err = l.scan(ctx, err)
	return l.found, l.found.ID != "" && err == nil, err
}

// scan reads the thread up to the entry. refused is the server's answer to the question for the entry. A server that
// gives a piece of one entry has given its last answer on the id, so scan reads no further; a 404 without a code is
// that of a proxy in front of it, and remains the result.
func (l *lookup) scan(ctx context.Context, refused error) error {
	l.limit = 1
	page, err := l.answer(ctx, l.silence)
	switch {
	case l.own != nil:
		return nil
	case err != nil && Final(err):
		return err
	case err == nil && l.next(page):
		return nil
	case err == nil && l.n <= 1 && NotFound(refused) && codeOf(refused) == "":
		return refused
	case err == nil && l.n <= 1:
		return nil
	case err == nil:
		l.c.scanned.Store(true)
	}
	if _, err = l.toTail(ctx); l.own != nil {
		return nil
	}
	return err
}

// The first and the largest piece of ReadBack, in entries. What is sought is mostly near the end.
const (
	firstBack = 16
	mostBack  = pieceEntries
)

// ReadBack passes the thread's entries before an offset, or before its tail ("now"), to f, the newest first, until f
// returns an error, which ReadBack returns, but for ErrStop. next is the place of before, from which a Follow
// continues; "" where the server can't read backwards: f has got nothing then. A server that is away between two
// pieces is waited for, for half a minute.
func (c *Client) ReadBack(ctx context.Context, before string, f func(thread.Entry) error) (next string, err error) {
	return c.Only().ReadBack(ctx, before, f)
}

// ReadBack is Client.ReadBack for the selected entries.
func (s Selection) ReadBack(ctx context.Context, before string, f func(thread.Entry) error) (next string, err error) {
	limit, wait, began := firstBack, firstWait, time.Now()
	for {
		piece, page, err := s.pieceBefore(ctx, before, limit)
		switch {
		case next == "" && (unwaited(err) && codeOf(err) != codeBeyond || err == nil && page.prev == ""):
			return "", nil
		case next != "" && away(err) && time.Since(began) < readAway && pause.For(ctx, wait):
			wait = min(2*wait, time.Second)
			continue
		case err != nil:
			return next, err
		}
		next = cmp.Or(next, page.Next)
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
		before, limit, wait, began = page.prev, min(4*limit, mostBack), firstWait, time.Now()
	}
}

// pieceBefore reads the last of the selected entries before an offset. It reads none from a server that ignores the
// offset.
func (s Selection) pieceBefore(
	ctx context.Context, before string, limit int,
) (piece []thread.Entry, page Page, err error) {
	err = s.reading(before, nil).attentive(ctx, readIdle, func(ctx context.Context, body *patientBody) error {
		var answer io.ReadCloser
		page, answer, err = s.c.open(ctx, "?before="+url.QueryEscape(before)+s.piece(limit))
		if err != nil {
			return err
		}
		if page.prev == "" {
			return answer.Close()
		}
		return body.entries(answer, func(e thread.Entry) error {
			if s.has(e) {
				piece = append(piece, e)
			}
			return nil
		})
	})
	return piece, page, err
}
