package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"

	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/token"
)

// JSON is the content type of JSON.
const JSON = "application/json"

// IsJSON reports whether a Content-Type is that of JSON.
func IsJSON(kind string) bool {
	if kind == JSON {
		return true
	}
	kind, _, err := mime.ParseMediaType(kind)
	return err == nil && kind == JSON
}

// readAll reads a body, and charges l with it.
func readAll(w http.ResponseWriter, r *http.Request, most int64, l *memory.Lease) ([]byte, error) {
	tooLarge := func() error {
		return Refuse(http.StatusRequestEntityTooLarge, "too_large", "the body has more than %d bytes", most)
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
	case ProblemOf(err) != nil:
		return nil, err
	}
	return nil, Refuse(http.StatusBadRequest, "body", "the body can't be read: %v", err)
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

// ReadJSON reads the JSON body of a request, which counts as posted by the holder of the grant. The caller calls free
// when it is done with the body.
func (c *Core) ReadJSON(
	w http.ResponseWriter, r *http.Request, g token.Grant, most int64,
) (body []byte, free func(), err error) {
	if !IsJSON(r.Header.Get("Content-Type")) {
		return nil, nil, Refuse(http.StatusUnsupportedMediaType, "content_type", "want application/json")
	}
	l := c.Lease(r, g)
	if body, err = ReadBody(w, r, most, l); err == nil {
		err = c.Spend(g, len(body))
	}
	if err != nil {
		l.Free()
		return nil, nil, err
	}
	return body, l.Free, nil
}

// ReadBody reads the body of an append.
func ReadBody(w http.ResponseWriter, r *http.Request, most int64, l *memory.Lease) ([]byte, error) {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, Refuse(http.StatusUnsupportedMediaType, "content_encoding",
			"a body is taken as it is, not as %.40q", e)
	}
	body, err := readAll(w, r, most, l)
	if err == nil {
		err = l.Turn(r.Context())
	}
	return body, err
}

// DecodeStrictly parses one JSON object without members that v lacks.
func DecodeStrictly(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one value")
	}
	return nil
}
