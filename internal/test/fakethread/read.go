package fakethread

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// cutting breaks the connection off after some bytes.
type cutting struct {
	http.ResponseWriter
	left int
}

// Unwrap is for http.ResponseController.
func (c *cutting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b[:min(len(b), c.left)])
	if c.left -= n; c.left == 0 {
		_ = http.NewResponseController(c.ResponseWriter).Flush() // the client may be gone
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// entry gives the entry with an id.
func (s *Server) entry(w http.ResponseWriter, r *http.Request, id string) {
	s.mu.Lock()
	e, ok := s.byID[id]
	ok = ok && !s.old && !s.whole && !s.refuses
	s.mu.Unlock()
	if !ok {
		code := "not_found"
		if !s.old && !s.whole && !s.refuses && len(s.Entries()) > 0 {
			code = "no_entry"
		}
		http.Error(w, `{"error":{"code":"`+code+`","message":"no such entry"}}`, http.StatusNotFound)
		return
	}
	s.write(w, e)
}

// write writes an entry of an answer, and reports whether the client took it.
func (s *Server) write(w http.ResponseWriter, e thread.Entry) bool {
	b := append(e.AppendJSON(nil), '\n')
	s.mu.Lock()
	s.sent += len(b)
	s.mu.Unlock()
	_, err := w.Write(b)
	return err == nil
}

// asked has the parameters of a read.
type asked struct {
	offset int // what is no number is the start
	live   bool
	limit  int // entries; 0 for all
	before int // -1 for none
	types  thread.Types
}

func (s *Server) asked(q url.Values) asked {
	a := asked{live: q.Get("live") != "", before: -1}
	a.offset, _ = strconv.Atoi(q.Get("offset"))
	if s.old || s.whole {
		return a
	}
	a.limit, _ = strconv.Atoi(q.Get("limit"))
	if before, err := strconv.Atoi(q.Get("before")); err == nil {
		a.before = before
	} else if q.Get("before") == "now" {
		a.before = len(s.list)
	}
	if types := q.Get("types"); types != "" {
		a.types.Of = strings.Split(types, ",")
	}
	if without := q.Get("without"); without != "" {
		a.types.Without = strings.Split(without, ",")
	}
	return a
}

// has reports whether an entry is one of those that a read asks for.
func (a asked) has(e thread.Entry) bool {
	var p struct{ Type string }
	_ = json.Unmarshal(e.Payload, &p) // a type whose members mean something else has its type
	return e.ID != "" && a.types.Has(p.Type)
}

// read gives the entries from the offset on, which is how many there are before it. It is asked to wait for one, and
// does for a moment.
func (s *Server) read(w http.ResponseWriter, r *http.Request, old bool, pace time.Duration) {
	q := r.URL.Query()
	s.mu.Lock()
	list, grew, deaf, page, a := s.list, s.grew, s.deaf, s.page, s.asked(q)
	refused := s.refuses && (q.Has("limit") || q.Has("before") || q.Has("types") || q.Has("without"))
	s.mu.Unlock()
	from := a.offset
	if old {
		from = 0
	} else if from > len(list) && len(list) > 0 || a.before > len(list) {
		http.Error(w, `{"error":{"code":"beyond_tail","message":"beyond the end"}}`, http.StatusBadRequest)
		return
	} else if refused || deaf && a.live {
		http.Error(w, `{"error":{"code":"bad","message":"not served"}}`, http.StatusBadRequest)
		return
	} else if a.live && from >= len(list) {
		late := time.NewTimer(longPoll)
		defer late.Stop()
		select {
		case <-grew:
		case <-late.C:
		case <-s.done:
		case <-r.Context().Done():
		}
		list = s.Entries()
		if from > len(list) { // restored meanwhile
			http.Error(w, `{"error":{"code":"beyond_tail","message":"beyond the end"}}`, http.StatusBadRequest)
			return
		}
	}
	if len(list) == 0 {
		http.Error(w, `{"error":{"code":"not_found","message":"never written"}}`, http.StatusNotFound)
		return
	}
	var part []thread.Entry
	if a.before >= 0 {
		at := a.before
		for at > 0 && (a.limit == 0 || len(part) < a.limit) {
			if at--; a.has(list[at]) {
				part = append(part, list[at])
			}
		}
		slices.Reverse(part)
		w.Header().Set("Stream-Prev-Offset", strconv.Itoa(at))
		w.Header().Set("Stream-Next-Offset", strconv.Itoa(a.before))
	} else {
		if a.limit > 0 && (page == 0 || a.limit < page) {
			page = a.limit
		}
		at := min(from, len(list))
		for at < len(list) && (page == 0 || len(part) < page) {
			if a.has(list[at]) {
				part = append(part, list[at])
			}
			at++
		}
		if !old {
			w.Header().Set("Stream-Next-Offset", strconv.Itoa(at))
			w.Header().Set("Stream-Up-To-Date", strconv.FormatBool(at == len(list)))
		}
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	for _, e := range part {
		if pace > 0 {
			_ = http.NewResponseController(w).Flush() // a broken connection shows in Write
			time.Sleep(pace)                          // this is the fault
		}
		if !s.write(w, e) {
			return
		}
	}
}

// longPoll is how long a read waits for an entry.
const longPoll = 2 * time.Second
