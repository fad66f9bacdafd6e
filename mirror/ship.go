package mirror

import (
	"context"
	"errors"
	"net/http"

	"arbe.0sk.ar/runner/thread"
)

// ship posts what is pending until each is on the thread or known to be refused for good. What it has changed of an entry stays changed: should the
// answer have been lost, the same is posted again.
func (m *Mirror) ship(ctx context.Context) error {
	for len(m.pending) > 0 {
		err := m.Append(ctx, m.pending)
		if err == nil {
			m.pending = nil
			return nil
		}
		var se *thread.StatusError
		if !errors.As(err, &se) {
			return err
		}
		rest, mended := m.mend(m.pending, se.Entries)
		if !mended {
			return err // the server complains of what was not posted
		}
		m.pending = rest
	}
	return nil
}

// mend is entries less those that are there already, and with something smaller for each that was refused: first the entry cut, where it was too
// large, then a stub. What is refused even so is left out. false where bad names none of the entries.
func (m *Mirror) mend(entries []thread.Entry, bad []thread.BadEntry) ([]thread.Entry, bool) {
	if m.refused == nil {
		m.refused = map[string]int{}
	}
	by := map[string]thread.BadEntry{}
	for _, b := range bad {
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
			continue // delivered, by whomever: what is there stays
		}
		m.refused[e.ID]++
		switch {
		case m.refused[e.ID] == 1 && b.Status == http.StatusRequestEntityTooLarge:
			m.Log.Warn("a line is too large for the server; posting it cut", "id", e.ID, "bytes", len(e.Payload), "reason", b.Reason)
			rest = append(rest, trimmed(e, m.Dialect.Prefix, b.Reason))
		case m.refused[e.ID] <= 2:
			m.Log.Warn("the server refuses a line; posting a stub for it", "id", e.ID, "reason", b.Reason)
			m.refused[e.ID] = 2
			rest = append(rest, stub(e, m.Dialect.Prefix, b.Reason))
		default:
			m.Log.Error("the server refuses a line and its stub; leaving it out", "id", e.ID, "reason", b.Reason)
		}
	}
	return rest, mended
}
