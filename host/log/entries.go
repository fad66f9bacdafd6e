package log

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// ParseEntries reads the JSON of one entry, or of an array of entries, from a writer. It returns a *SyntaxError,
// ErrEmpty, a *CountError, or an *EntriesError with the entries that are refused for the reason of the first one.
func ParseEntries(body []byte, w Writer) ([]thread.Entry, error) {
	body = bytes.TrimSpace(body)
	raws := []json.RawMessage{body}
	if len(body) > 0 && body[0] == '[' {
		if err := checkCount(body, thread.MaxEntries); err != nil && json.Valid(body) {
			return nil, err
		}
		entries, err := thread.ParseEntries(body)
		refused := func(e thread.Entry) bool { _, why := w.refuses(e); return why != "" }
		if err == nil && !slices.ContainsFunc(entries, refused) {
			return entries, nil
		}
		// An entry is bad: check each on its own.
		raws = nil
		if err := json.Unmarshal(body, &raws); err != nil {
			return nil, &SyntaxError{"no JSON", err}
		}
	}
	entries := make([]thread.Entry, len(raws))
	var bad *EntriesError
	refuse := func(i int, reason Reason, why string) {
		if bad == nil {
			bad = &EntriesError{Reason: reason}
		}
		if bad.Reason == reason {
			bad.Entries = append(bad.Entries, thread.BadEntry{Index: i, ID: entries[i].ID, Reason: why})
		}
	}
	for i, raw := range raws {
		e, err := thread.ParsePosted(raw)
		entries[i] = e
		var syntax *json.SyntaxError
		var size *thread.SizeError
		switch {
		case errors.As(err, &syntax): // only of a body without an array
			return nil, &SyntaxError{"no JSON", err}
		case errors.As(err, &size):
			refuse(i, TooLarge, size.Error())
		case err != nil:
			refuse(i, Invalid, err.Error())
		default:
			if reason, why := w.refuses(e); why != "" {
				refuse(i, reason, why)
			}
		}
	}
	if bad != nil {
		return nil, bad
	}
	return entries, nil
}

// addEntries adds the new ones of entries to an append to v, and to the properties of v what they change.
func (l *Log) addEntries(
	ctx context.Context, v *Stream, a *engine.Append, entries []thread.Entry, res *Appended,
) error {
	var conflicts []thread.BadEntry
	var fresh map[string]thread.Entry // by id, of this append
	if len(entries) > 1 {
		fresh = make(map[string]thread.Entry, len(entries))
	}
	now := time.Now()
	a.Records = make([]engine.Record, 0, len(entries))
	for i, e := range entries {
		before, taken := fresh[e.ID]
		same := taken && equalJSON(before.Payload, e.Payload)
		if !taken {
			r, found, err := l.engine.Lookup(ctx, v.Name, e.ID)
			if err != nil {
				return err
			}
			if taken = found; found {
				same = len(r.Data) == 0 // removed since: its payload is unknown, and counts as equal
				if !same {
					old, err := thread.ParseStored(r.Data)
					if err != nil {
						return fmt.Errorf("entry %s in the log: %w", e.ID, err)
					}
					same = equalJSON(old.Payload, e.Payload)
				}
			}
		}
		switch {
		case same:
			res.Duplicates++
		case taken:
			const why = "the id is taken by an entry with another payload"
			conflicts = append(conflicts, thread.BadEntry{Index: i, ID: e.ID, Reason: why})
		default:
			data := e.AppendJSON(make([]byte, 0, len(e.Payload)+len(e.ID)+len(e.TS)+len(e.AuthorID)+64))
			a.Records = append(a.Records, engine.Record{At: now, Key: e.ID, Data: data})
			res.Appended++
			v.Passing = v.Passing || thread.IsPassing(thread.TypeOf(e.Payload))
			if fresh != nil {
				fresh[e.ID] = e
			}
		}
	}
	if conflicts != nil {
		return &ConflictError{conflicts}
	}
	return nil
}

func sizeOf(records []engine.Record) (n int) {
	for _, r := range records {
		n += len(r.Data)
	}
	return n
}
