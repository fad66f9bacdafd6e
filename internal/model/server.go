package model

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Server answers requests as a Script says. The zero value with a Script is ready; it is safe for concurrent use.
type Server struct {
	Script Script

	mu       sync.Mutex
	requests []Request
	served   int // requests that the current reply has answered
	next     int // the current reply
}

// Request is what an agent asked.
type Request struct {
	Path string
	Auth string // the Authorization header
	Body json.RawMessage
}

// Requests are those that came so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// More adds replies to the script.
func (s *Server) More(replies ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Script.Replies = append(s.Script.Replies, replies...)
}

// take notes a request and returns its reply, and the reply's number.
func (s *Server) take(r Request) (Reply, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.requests)
	s.requests = append(s.requests, r)
	if s.next >= len(s.Script.Replies) {
		return Reply{Status: http.StatusTeapot, Message: "the script has no more replies"}, n
	}
	reply := s.Script.Replies[s.next]
	if s.served++; reply.Times >= 0 && s.served >= max(1, reply.Times) {
		s.next, s.served = s.next+1, 0
	}
	return reply, n
}

// ServeHTTP speaks chat-completions below /v1.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || !json.Valid(body) {
		http.Error(w, "want JSON", http.StatusBadRequest)
		return
	}
	write := map[string]func(*stream, Reply, int){"/v1/chat/completions": writeChat}[r.URL.Path]
	if r.Method != http.MethodPost || write == nil {
		http.NotFound(w, r)
		return
	}
	reply, n := s.take(Request{Path: r.URL.Path, Auth: r.Header.Get("Authorization"), Body: body})
	st := &stream{w: w, r: r, left: reply.Cut}
	st.pause(time.Duration(reply.Wait))
	if reply.Status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(reply.Status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": reply.Message, "type": "scripted"}}) // the agent may be gone
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	write(st, reply, n)
}

// stream is one answer under way.
type stream struct {
	w    http.ResponseWriter
	r    *http.Request
	left int // words until the connection breaks off; 0 for never
}

// event sends one server-sent event. It ends the handler when the agent is gone.
func (s *stream) event(data any) {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err) // our own shapes marshal
	}
	s.raw("data: " + string(b) + "\n\n")
}

func (s *stream) raw(text string) {
	if _, err := io.WriteString(s.w, text); err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = http.NewResponseController(s.w).Flush() // an agent that is gone is seen at the next write
}

// words calls f for each word of text, with the pace of the reply, and breaks the connection off where the script says so.
func (s *stream) words(text string, pace Duration, f func(word string)) {
	for _, word := range strings.SplitAfter(text, " ") {
		f(word)
		if s.left > 0 {
			if s.left--; s.left == 0 {
				panic(http.ErrAbortHandler)
			}
		}
		s.pause(time.Duration(pace))
	}
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
