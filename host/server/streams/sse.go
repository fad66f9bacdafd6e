package streams

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/server/metrics"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/thread"
)

// Times of a stream of events: when it ends, and how often a comment keeps proxies from closing it.
const (
	Life = 60 * time.Second
	Ping = 15 * time.Second
)

// controlEvent is the event that follows each event with data.
type controlEvent struct {
	Next     string `json:"streamNextOffset"`
	Cursor   string `json:"streamCursor,omitempty"`
	UpToDate bool   `json:"upToDate,omitempty"`
	Closed   bool   `json:"streamClosed,omitempty"`
}

// liveReader is the state of a reader of events.
type liveReader struct {
	types  thread.Types // that it wants
	begun  bool         // an event has reached it
	after  log.Offset   // up to which it has read, or entries of other types were left out
	known  log.Offset   // the last one that was sent to it
	tail   bool         // the last event had upToDate
	cursor string
	binary bool // its data is base64
}

// due reports whether there is an event to send about a stream that ends at tail.
//
//	begun   after     stream   result
//	no      any       any      an event, without data where there is none, so that the reader gets its offset
//	yes     < tail    any      an event with data
//	yes     = tail    closed   the last event
//	yes     = tail    open     none: wait
func (l *liveReader) due(tail uint64, closed bool) bool {
	return !l.begun || l.after.Seq < tail || closed
}

// skip moves the reader over a piece without entries of its types, and reports whether it did. It does not where an
// event is due without data: the first one, and the one that reports the tail.
func (l *liveReader) skip(p log.Piece, tail uint64) bool {
	if l.types.All() || len(p.Records) > 0 || !l.begun || !l.tail && p.Next.Seq >= tail {
		return false
	}
	l.after = p.Next
	return true
}

// sent moves the reader up to offset after, and returns the control event that follows the data.
//
//	after     stream   upToDate   streamClosed   streamCursor
//	< tail    any      no         no             yes
//	= tail    open     yes        no             yes
//	= tail    closed   yes        yes: the end   no
func (l *liveReader) sent(after log.Offset, tail uint64, closed bool, now time.Time) controlEvent {
	l.begun, l.after, l.known, l.tail = true, after, after, after.Seq >= tail
	c := controlEvent{Next: request.Place(after), UpToDate: l.tail, Closed: closed && l.tail}
	if !c.Closed {
		l.cursor = max(l.cursor, cursor(now, ""))
		c.Cursor = l.cursor
	}
	return c
}

// events serves a stream as server-sent events: its records, and those that are appended later. A reader that is too
// slow is disconnected, and reads on from its last offset.
func (a *API) events(
	w http.ResponseWriter, r *http.Request, f *log.Follower, v log.Stream, at *liveReader, l *memory.Lease,
) error {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	binary := !v.IsJSON() && !strings.HasPrefix(v.Type, "text/")
	if binary {
		h.Set(request.HeaderEncoding, "base64")
	}
	done := a.Metrics.Reader(metrics.Events)
	defer done()
	rc := http.NewResponseController(w)
	life := time.NewTimer(Life)
	defer life.Stop()
	ping := time.NewTicker(Ping)
	defer ping.Stop()
	at.cursor, at.binary = cursor(time.Now(), r.URL.Query().Get("cursor")), binary
	for name := v.Name; ; {
		v, changed, err := f.Stat(r.Context())
		for err == nil && at.due(v.Tail(), v.Closed) {
			var more bool
			if more, err = a.sendEvent(w, r, v, at, l); err == nil && !more {
				return nil
			}
		}
		switch {
		case err != nil && !at.begun:
			return err
		case err != nil:
			if request.ProblemOf(err) == nil && r.Context().Err() == nil {
				a.Logger.Error("live read interrupted", "stream", name, "error", err)
			}
			return nil // the reader gets the error when it reconnects
		}
		select {
		case <-changed:
		case <-ping.C:
			if a.tellOffset(w, r, v, at) {
				continue
			}
			if _, err := io.WriteString(w, ": waiting\n\n"); err != nil || rc.Flush() != nil {
				return nil
			}
		case <-life.C:
			a.tellOffset(w, r, v, at)
			return nil
		case <-a.Closing.Done():
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
}

// tellOffset sends the offset of a reader that has moved over entries of other types, so that it need not read them
// when it reconnects, and reports whether it did.
func (a *API) tellOffset(w http.ResponseWriter, r *http.Request, v log.Stream, at *liveReader) bool {
	if at.after == at.known {
		return false
	}
	out := a.Answer(r.Context(), w, 200)
	writeControl(out, at.sent(at.after, v.Tail(), v.Closed, time.Now()))
	return out.Flush() == nil && http.NewResponseController(w).Flush() == nil
}

// sendEvent sends the records after the reader's offset, as many as fit into one event. It reports false after the last
// event, and where the reader is gone or too slow.
func (a *API) sendEvent(
	w http.ResponseWriter, r *http.Request, v log.Stream, at *liveReader, l *memory.Lease,
) (more bool, err error) {
	p, err := a.Content(r.Context(), v, at.after, at.types, l)
	if err != nil {
		return false, err
	}
	if at.skip(p, v.Tail()) {
		l.Drop()
		return true, nil
	}
	out := a.Answer(r.Context(), w, memory.RecordBytes(p.Records)+200)
	if len(p.Records) > 0 {
		writeData(out, v, p.Records, at.binary)
	}
	c := at.sent(p.Next, v.Tail(), v.Closed, time.Now())
	writeControl(out, c)
	if out.Flush() != nil || http.NewResponseController(w).Flush() != nil || c.Closed {
		return false, nil
	}
	l.Drop()
	return true, nil
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

// writeControl writes a control event. A browser returns its id when it reconnects. An error stays in w.
func writeControl(w *bufio.Writer, c controlEvent) {
	_, _ = fmt.Fprintf(w, "event: control\ndata:%s\nid:%s\n\n", thread.Marshal(c), c.Next)
}

// eventData writes data as that of a server-sent event, a data line for each line of it: a carriage return, a line feed
// and the two together each end one. It buffers nothing.
type eventData struct {
	w     *bufio.Writer // keeps its error
	begun bool          // a line has begun
	cr    bool          // the last byte was a carriage return, which a line feed may complete
}

// Write implements io.Writer.
func (e *eventData) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if e.cr && p[0] == '\n' {
			e.cr, p = false, p[1:]
			continue
		}
		e.cr = false
		if !e.begun {
			e.w.WriteString("data:")
			if p[0] == ' ' {
				e.w.WriteByte(' ') // readers remove one
			}
			e.begun = true
		}
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			_, err := e.w.Write(p)
			return n, err
		}
		e.w.Write(p[:i])
		if err := e.w.WriteByte('\n'); err != nil {
			return 0, err
		}
		e.begun, e.cr, p = false, p[i] == '\r', p[i+1:]
	}
	return n, nil
}

// end ends the event.
func (e *eventData) end() error {
	if !e.begun {
		e.w.WriteString("data:")
	}
	_, err := e.w.WriteString("\n\n")
	return err
}
