package server

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// append serves the post of one entry or an array of them.
func (s *Server) append(w http.ResponseWriter, r *http.Request, g token.Grant) error {
	if !isJSON(r.Header.Get("Content-Type")) {
		return refuse(http.StatusUnsupportedMediaType, "content_type", "want application/json")
	}
	l := s.lease(r, g)
	defer l.Free()
	body, err := readBody(w, r, thread.MaxBody, l)
	if err == nil {
		err = s.spend(g, len(body))
	}
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return refuse(http.StatusBadRequest, "empty", "the body is empty")
	}
	entries, err := log.ParseEntries(body, s.writerOf(g))
	if err != nil {
		return err
	}
	res, err := s.Log.Append(r.Context(), threadOf(g), entries)
	if err != nil {
		return err
	}
	s.settleCancelled(r.Context(), threadOf(g), entries)
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

// jsonType is the content type of JSON.
const jsonType = "application/json"

// isJSON reports whether a Content-Type is that of JSON.
func isJSON(kind string) bool {
	if kind == jsonType {
		return true
	}
	kind, _, err := mime.ParseMediaType(kind)
	return err == nil && kind == jsonType
}

// readAll reads a body, and charges l with it.
func readAll(w http.ResponseWriter, r *http.Request, most int64, l *memory.Lease) ([]byte, error) {
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
	case problemOf(err) != nil:
		return nil, err
	}
	return nil, refuse(http.StatusBadRequest, "body", "the body can't be read: %v", err)
}

// firstRead is how many bytes are allocated before any of a body has come.
const firstRead = 32 << 10

// readGrowing reads to the end, or length bytes where length is not negative. It charges l with what it allocates, at
// most twice what has come, whatever length the client announces.
func readGrowing(from io.Reader, length int64, l *memory.Lease) ([]byte, error) {
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
			if err := l.Grow(memory.BodyCharge * (room - cap(body))); err != nil {
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
