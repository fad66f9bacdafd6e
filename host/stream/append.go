package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// append takes one entry or an array of them.
func (s *Server) append(w http.ResponseWriter, r *http.Request, g Grant) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "content_type", "want application/json")
	}
	body, err := readBody(w, r, thread.MaxBody)
	if err != nil {
		return err
	}
	entries, err := parseBody(body, g.Run)
	if err != nil {
		return err
	}
	res, err := s.Log.Append(r.Context(), g.Thread, entries)
	if err != nil {
		return asAnswer(err)
	}
	next := offset(res.Next)
	h := w.Header()
	h.Set(headerNext, next)
	h.Set("Content-Type", "application/json")
	b := append(append(make([]byte, 0, 80), `{"nextOffset":"`...), next...)
	b = strconv.AppendInt(append(b, `","appended":`...), int64(res.Appended), 10)
	b = strconv.AppendInt(append(b, `,"duplicates":`...), int64(res.Duplicates), 10)
	_, _ = w.Write(append(b, "}\n"...)) // the client may be gone
	return nil
}

// readAll reads a body, which a client has some time to send.
func readAll(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	tooLarge := refuse(http.StatusRequestEntityTooLarge, "too_large", "the body has more than %d bytes", most)
	if r.ContentLength > most {
		return nil, tooLarge
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // a reader without deadlines is a test's. The next request has its own
	from := http.MaxBytesReader(w, r.Body, most)
	var body []byte
	var err error
	if n := r.ContentLength; n >= 0 && n <= readChunk {
		body = make([]byte, n)
		_, err = io.ReadFull(from, body)
	} else { // whoever announces much has to send it first
		body, err = io.ReadAll(from)
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "body", "the body can't be read: %v", err)
	}
	return body, nil
}

// parseBody reads one entry or an array of entries. What is wrong is said of each entry, and the first kind of trouble decides the status.
func parseBody(body []byte, run string) ([]thread.Entry, error) {
	body = bytes.TrimSpace(body)
	raws := []json.RawMessage{body}
	if len(body) > 0 && body[0] == '[' {
		entries, err := thread.ParseEntries(body)
		if err == nil && len(entries) > 0 && len(entries) <= thread.MaxEntries && fit(entries, run) {
			return entries, nil
		}
		// Something is wrong: now each entry is looked at by itself.
		raws = nil
		if err := json.Unmarshal(body, &raws); err != nil {
			return nil, refuse(http.StatusBadRequest, "json", "the body is no JSON: %v", err)
		}
		if len(raws) == 0 {
			return nil, refuse(http.StatusBadRequest, "empty", "the array has no entries")
		}
		if len(raws) > thread.MaxEntries {
			return nil, refuse(http.StatusRequestEntityTooLarge, "too_many", "the array has %d entries, more than %d", len(raws), thread.MaxEntries)
		}
	}
	entries := make([]thread.Entry, len(raws))
	var bad *problem
	say := func(i int, status int, code, reason string) {
		if bad == nil {
			bad = refuse(status, code, "entries are refused, and none was appended")
		}
		if bad.status == status {
			bad.entries = append(bad.entries, thread.BadEntry{Index: i, ID: entries[i].ID, Reason: reason})
		}
	}
	for i, raw := range raws {
		e, err := thread.ParseEntryIn(raw)
		entries[i] = e
		var syntax *json.SyntaxError
		var size *thread.SizeError
		switch {
		case errors.As(err, &syntax): // only where there is no array around it
			return nil, refuse(http.StatusBadRequest, "json", "the body is no JSON: %v", err)
		case errors.As(err, &size):
			say(i, http.StatusRequestEntityTooLarge, "too_large", size.Error())
		case err != nil:
			say(i, http.StatusBadRequest, "invalid", err.Error())
		default:
			if reason := foreign(e, run); reason != "" {
				say(i, http.StatusForbidden, "wrong_run", reason)
			}
		}
	}
	if bad != nil {
		return nil, bad
	}
	return entries, nil
}

// fit reports whether all entries may be posted with a token for run.
func fit(entries []thread.Entry, run string) bool {
	for _, e := range entries {
		if foreign(e, run) != "" {
			return false
		}
	}
	return true
}

// foreign returns why a token for run may not post the entry, which has been checked; "" where it may. Such a token
// may post this run's signals, and what is no signal, but no id that belongs to another run or that claims the
// thread's next one. Without a run it may post anything.
func foreign(e thread.Entry, run string) string {
	if run == "" {
		return ""
	}
	if owner, ok := thread.RunOf(e.ID); ok && owner != run || thread.IsClaim(e.ID) {
		return "the token is for run " + run + ": it may not take an id of another run"
	}
	if f, err := thread.Scan(e.Payload); err != nil || f.Signal() && f.RunID != run {
		return "the token is for run " + run + ": it may post no signal of another run"
	}
	return ""
}
