package stream

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/stream/store"
	"arbe.0sk.ar/runner/thread"
)

// Lives of an event stream: so long it is kept, and so often something is said where nothing comes, for who stands between to know that it lives.
const (
	sseLife = 60 * time.Second
	ssePing = 15 * time.Second
)

// controlEvent is the event that follows each event with data.
type controlEvent struct {
	Next     string `json:"streamNextOffset"`
	Cursor   string `json:"streamCursor,omitempty"`
	UpToDate bool   `json:"upToDate,omitempty"`
	Closed   bool   `json:"streamClosed,omitempty"`
}

// events gives a stream as server-sent events: what is there, and what comes. A reader who does not take it is dropped, and comes again where he was.
func (s *Server) events(w http.ResponseWriter, r *http.Request, f *follower, v view, after uint64) error {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	encode := func(b []byte) []byte { return b }
	if !v.isJSON() && !strings.HasPrefix(v.Type, "text/") {
		h.Set(headerEncoding, "base64")
		encode = func(b []byte) []byte { return base64.StdEncoding.AppendEncode(nil, b) }
	}
	done := s.metrics.reader(readerSSE)
	defer done()
	rc := http.NewResponseController(w)
	send := func(b []byte) bool { return s.write(r.Context(), w, rc, b) && rc.Flush() == nil }
	life := time.NewTimer(sseLife)
	defer life.Stop()
	ping := time.NewTicker(ssePing)
	defer ping.Stop()
	first, have := true, cursor(time.Now(), r.URL.Query().Get("cursor"))
	for {
		head, grown, err := f.look(r.Context())
		if err == nil {
			v, err = s.Log.judge(r.Context(), v.name, head)
		}
		for err == nil && (first || after < v.tail() || v.Closed) {
			var records []store.Record
			if records, err = s.Log.records(r.Context(), v, after, v.tail(), chunk); err != nil {
				break
			}
			var out []byte
			if after = v.tail(); len(records) > 0 {
				after = records[len(records)-1].Seq
				out = appendEvent(out, "data", encode(render(v, records)))
			}
			c := controlEvent{Next: offset(after), UpToDate: after >= v.tail(), Closed: v.Closed && after >= v.tail()}
			if !c.Closed {
				have = max(have, cursor(time.Now(), ""))
				c.Cursor = have
			}
			first = false
			if !send(appendControl(out, c)) || c.Closed {
				return nil
			}
		}
		if err != nil && first {
			return asAnswer(err)
		}
		if err != nil {
			if err = asAnswer(err); !errors.As(err, new(*problem)) && r.Context().Err() == nil {
				s.Logger.Error("a live read broke off", "stream", v.name, "error", err)
			}
			return nil // who comes again is told
		}
		select {
		case <-grown:
		case <-ping.C:
			if !send([]byte(": waiting\n\n")) {
				return nil
			}
		case <-life.C:
			return nil
		case <-s.closing().Done():
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
}

// appendEvent writes an event. Whatever ends a line in its data begins a new one.
func appendEvent(b []byte, kind string, data []byte) []byte {
	b = append(append(append(b, "event: "...), kind...), '\n')
	for {
		i := bytes.IndexAny(data, "\r\n")
		line := data
		if i >= 0 {
			line = data[:i]
		}
		b = append(b, "data:"...)
		if len(line) > 0 && line[0] == ' ' {
			b = append(b, ' ') // readers take one away
		}
		b = append(append(b, line...), '\n')
		if i < 0 {
			return append(b, '\n')
		}
		if data[i] == '\r' && i+1 < len(data) && data[i+1] == '\n' {
			i++
		}
		data = data[i+1:]
	}
}

// appendControl writes where the reader stands. A browser gives the id back when it comes again.
func appendControl(b []byte, c controlEvent) []byte {
	b = appendEvent(b, "control", thread.Marshal(c))
	return append(append(append(b[:len(b)-1], "id:"...), c.Next...), "\n\n"...)
}
