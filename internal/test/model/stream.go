package model

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"time"
)

// stream is one answer under way.
type stream struct {
	w     http.ResponseWriter
	r     *http.Request
	n     int    // the request's number
	id    string // the end of every id in the answer
	asked struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
	}
	pace time.Duration
	left int // words until the answer breaks off; -1 for never
}

func newStream(w http.ResponseWriter, r *http.Request, reply Reply, n int, body []byte) *stream {
	// A session that continues with another server must not see an id twice: what is asked is a part of it.
	s := &stream{
		w:    w,
		r:    r,
		n:    n,
		id:   fmt.Sprintf("%d_%08x", n, crc32.ChecksumIEEE(body)),
		pace: time.Duration(reply.Pace),
		left: reply.Cut,
	}
	_ = json.Unmarshal(body, &s.asked) // missing fields stay empty
	if reply.Cut == 0 && reply.Error == "" {
		s.left = -1
	}
	return s
}

// data sends one server-sent event without a name. It ends the handler when the agent is gone.
func (s *stream) data(data any) {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err) // our own shapes marshal
	}
	s.raw("data: " + string(b) + "\n\n")
}

// event sends one server-sent event that is named like its type.
func (s *stream) event(kind string, data object) {
	data["type"] = kind
	s.raw("event: " + kind + "\n")
	s.data(data)
}

func (s *stream) raw(text string) {
	if _, err := io.WriteString(s.w, text); err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = http.NewResponseController(s.w).Flush() // an agent that is gone is seen at the next write
}

// words calls f for each word of text, with the pace of the reply, and returns false where the script breaks the answer
// off.
func (s *stream) words(text string, f func(word string)) bool {
	if text == "" {
		return s.left != 0
	}
	for _, word := range strings.SplitAfter(text, " ") {
		if s.left == 0 {
			return false
		}
		f(word)
		s.left = max(-1, s.left-1)
		if s.left != 0 {
			s.pause(s.pace)
		}
	}
	return s.left != 0
}

// pause waits, unless the agent goes.
func (s *stream) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}
