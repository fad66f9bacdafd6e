package server

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
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
func (s *Server) events(w http.ResponseWriter, r *http.Request, f *log.Follower, v log.Stream, after uint64, l *lease) error {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	binary := !v.IsJSON() && !strings.HasPrefix(v.Type, "text/")
	if binary {
		h.Set(headerEncoding, "base64")
	}
	done := s.metrics.reader(readerSSE)
	defer done()
	rc := http.NewResponseController(w)
	life := time.NewTimer(sseLife)
	defer life.Stop()
	ping := time.NewTicker(ssePing)
	defer ping.Stop()
	first, have := true, cursor(time.Now(), r.URL.Query().Get("cursor"))
	for {
		now, grown, err := f.Stat(r.Context())
		if err == nil {
			v = now
		}
		for err == nil && (first || after < v.Tail() || v.Closed) {
			var records []engine.Record
			if records, err = l.records(r.Context(), s.Log, v, after, v.Tail(), chunk); err != nil {
				break
			}
			out := s.answer(r.Context(), w, recordBytes(records)+200)
			if after = v.Tail(); len(records) > 0 {
				after = records[len(records)-1].Seq
				writeData(out, v, records, binary)
			}
			c := controlEvent{Next: offset(after), UpToDate: after >= v.Tail(), Closed: v.Closed && after >= v.Tail()}
			if !c.Closed {
				have = max(have, cursor(time.Now(), ""))
				c.Cursor = have
			}
			first = false
			writeControl(out, c)
			if out.Flush() != nil || rc.Flush() != nil || c.Closed {
				return nil
			}
			l.drop()
		}
		if err != nil && first {
			return err
		}
		if err != nil {
			if problemOf(err) == nil && r.Context().Err() == nil {
				s.Logger.Error("a live read broke off", "stream", v.Name, "error", err)
			}
			return nil // who comes again is told
		}
		select {
		case <-grown:
		case <-ping.C:
			if _, err := io.WriteString(w, ": waiting\n\n"); err != nil || rc.Flush() != nil {
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

// writeData writes records as an event. An error stays in w.
func writeData(w *bufio.Writer, v log.Stream, records []engine.Record, binary bool) {
	_, _ = w.WriteString("event: data\n")
	data := &eventData{w: w}
	if binary {
		e := base64.NewEncoder(base64.StdEncoding, data)
		writeRecords(e, v, records)
		_ = e.Close()
	} else {
		writeRecords(data, v, records)
	}
	_ = data.end()
}

// writeControl writes where the reader stands. A browser gives the id back when it comes again. An error stays in w.
func writeControl(w *bufio.Writer, c controlEvent) {
	_, _ = fmt.Fprintf(w, "event: control\ndata:%s\nid:%s\n\n", thread.Marshal(c), c.Next)
}
