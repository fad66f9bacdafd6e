package mirror

import (
	"context"
	"errors"
	"net/http"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// ship posts the pending entries until each is on the thread or refused for good. An entry that it replaced stays
// replaced: a repeated post has the same bytes, should the first answer have been lost.
func (m *Mirror) ship(ctx context.Context) error {
	for len(m.pending) > 0 {
		err := m.Append(ctx, m.pending)
		if err == nil {
			m.pending = nil
			return nil
		}
		var se *client.StatusError
		if !errors.As(err, &se) {
			return err
		}
		rest, mended := m.mend(m.pending, se.Entries)
		if !mended {
			return err // the refused ids are not of this post
		}
		m.pending = rest
	}
	return nil
}

// mend returns the entries to post next. It drops those that are on the thread (409), and replaces a refused one: by
// the entry cut where it was too large, then by a stub. An entry whose stub is refused is dropped. mend returns false
// where bad names none of the entries.
func (m *Mirror) mend(entries []thread.Entry, bad []thread.BadEntry) ([]thread.Entry, bool) {
	if m.refused == nil {
		m.refused = map[string]int{}
	}
	by := map[string]thread.BadEntry{}
	for _, b := range bad {
		if b.ID == "" && b.Index >= 0 && b.Index < len(entries) { // the server could not read it
			b.ID = entries[b.Index].ID
		}
		by[b.ID] = b
	}
	var rest []thread.Entry
	mended := false
	for _, e := range entries {
		b, is := by[e.ID]
		if !is {
			rest = append(rest, e)
			continue
		}
		mended = true
		if b.Status == http.StatusConflict {
			continue // the id is on the thread: delivered
		}
		m.refused[e.ID]++
		switch {
		case m.refused[e.ID] == 1 && b.Status == http.StatusRequestEntityTooLarge:
			m.Log.Warn("server refuses a line as too large; posting it cut",
				"id", e.ID, "bytes", len(e.Payload), "reason", b.Reason)
			rest = append(rest, trimmed(e, m.Dialect.Prefix, b.Reason))
		case m.refused[e.ID] <= 2:
			m.Log.Warn("server refuses a line; posting a stub", "id", e.ID, "reason", b.Reason)
			m.refused[e.ID] = 2
			rest = append(rest, stub(e, m.Dialect.Prefix, b.Reason))
		default:
			m.Log.Error("server refuses a line and its stub; dropping the line", "id", e.ID, "reason", b.Reason)
		}
	}
	return rest, mended
}
