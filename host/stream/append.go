package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"arbe.0sk.ar/runner/thread"
)

// append takes one entry or an array of them.
func (s *Server) append(w http.ResponseWriter, r *http.Request, g Grant) error {
	if !isJSON(r.Header.Get("Content-Type")) {
		return refuse(http.StatusUnsupportedMediaType, "content_type", "want application/json")
	}
	l := s.lease(r, g)
	defer l.free()
	body, err := readBody(w, r, thread.MaxBody, l)
	if err == nil {
		err = s.spend(g, len(body))
	}
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

// isJSON reports whether a Content-Type is that of JSON.
func isJSON(kind string) bool {
	if kind == jsonType {
		return true
	}
	kind, _, err := mime.ParseMediaType(kind)
	return err == nil && kind == jsonType
}

// readAll reads a body, which a client has some time to send. l is charged with what has come.
func readAll(w http.ResponseWriter, r *http.Request, most int64, l *lease) ([]byte, error) {
	tooLarge := func() error {
		return refuse(http.StatusRequestEntityTooLarge, "too_large", "the body has more than %d bytes", most)
	}
	if r.ContentLength > most {
		return nil, tooLarge()
	}
	from := r.Body
	if r.ContentLength < 0 {
		from = http.MaxBytesReader(w, r.Body, most)
	}
	body, err := readGrowing(from, r.ContentLength, l)
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, tooLarge()
	case errors.As(err, new(*problem)):
		return nil, err
	}
	return nil, refuse(http.StatusBadRequest, "body", "the body can't be read: %v", err)
}

// firstRead is how much of a body is made room for before any of it has come.
const firstRead = 32 << 10

// readGrowing reads to the end, or length bytes where that is not less than 0. It makes room for at most as much again as has come, however much a
// client announces, and charges l with it.
func readGrowing(from io.Reader, length int64, l *lease) ([]byte, error) {
	var body []byte
	for {
		if length >= 0 && int64(len(body)) == length {
			return body, nil
		}
		if len(body) == cap(body) {
			room := max(2*cap(body), firstRead)
			if length >= 0 {
				room = int(min(int64(room), length))
			}
			if err := l.grow(bodyCharge * (room - cap(body))); err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, room), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case err == io.EOF && int64(len(body)) < length:
			return nil, io.ErrUnexpectedEOF
		case err == io.EOF:
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}

// parseBody reads one entry or an array of entries. What is wrong is said of each entry, and the first kind of trouble decides the status.
func parseBody(body []byte, run string) ([]thread.Entry, error) {
	body = bytes.TrimSpace(body)
	raws := []json.RawMessage{body}
	if len(body) > 0 && body[0] == '[' {
		if err := checkCount(body, thread.MaxEntries); err != nil && json.Valid(body) {
			return nil, err
		}
		entries, err := thread.ParseEntries(body)
		if err == nil && fit(entries, run) {
			return entries, nil
		}
		// Something is wrong: now each entry is looked at by itself.
		raws = nil
		if err := json.Unmarshal(body, &raws); err != nil {
			return nil, refuse(http.StatusBadRequest, "json", "the body is no JSON: %v", err)
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
