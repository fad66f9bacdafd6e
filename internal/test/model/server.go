package model

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// Server answers requests by a Script. The zero value with a Script is ready; it is safe for concurrent use.
type Server struct {
	Script Script
	Answer func(Request) Reply // in place of the script; nil for none

	mu       sync.Mutex
	requests []Request
	served   []int // requests that each reply has answered
}

// Request is a request of an agent.
type Request struct {
	Path string
	Auth string // the Authorization header, else X-Api-Key
	Body json.RawMessage
}

// Requests are those that came so far; what an agent asks besides its model is not among them.
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

// Drop drops what is left of the script.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Script.Replies, s.served = nil, nil
}

// take notes a request and returns its reply, and the request's number.
func (s *Server) take(r Request) (Reply, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.requests)
	s.requests = append(s.requests, r)
	if s.Answer != nil {
		return s.Answer(r), n
	}
	for i, reply := range s.Script.Replies {
		if i == len(s.served) {
			s.served = append(s.served, 0)
		}
		used := reply.Times >= 0 && s.served[i] >= max(1, reply.Times)
		if !used && bytes.Contains(r.Body, []byte(reply.When)) {
			s.served[i]++
			return reply, n
		}
	}
	return Reply{Status: http.StatusTeapot, Message: "the script has no more replies"}, n
}

// object is a JSON object.
type object = map[string]any

// api writes a reply in a wire format.
type api struct {
	// say writes a reply as a stream, and reports whether it is complete. The stream of an incomplete one has no end.
	say func(*stream, Reply) bool
	// the reply where no stream is asked for; nil is an API of which only streams are asked
	whole func(*stream, Reply) any
	// the body of an error instead of a stream; the code is "" for the status's own
	fault  func(status int, code, message string) any
	broken func(s *stream, message string) // writes an error into a stream
}

// ServeHTTP speaks the APIs below /v1.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	speak, known := map[string]api{
		"/v1/chat/completions": chat, "/v1/responses": responses,
		"/v1/messages": messages,
	}[r.URL.Path]
	switch {
	// claude checks so that it is online, unless it is configured to send nothing but model requests
	case r.Method == http.MethodHead:
		return
	// codex's own provider asks for a websocket first; this status, and no other, it takes for an answer
	case r.Method == http.MethodGet && known:
		http.Error(w, "no websockets here", http.StatusUpgradeRequired)
		return
	case r.Method != http.MethodPost || !known:
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || !json.Valid(body) {
		http.Error(w, "want JSON", http.StatusBadRequest)
		return
	}
	auth := r.Header.Get("Authorization")
	if auth == "" {
		auth = r.Header.Get("X-Api-Key")
	}
	reply, n := s.take(Request{Path: r.URL.Path, Auth: auth, Body: body})
	st := newStream(w, r, reply, n, body)
	st.pause(time.Duration(reply.Wait))
	if reply.Status != 0 {
		speak.refuse(w, reply)
		return
	}
	if speak.whole != nil && !st.asked.Stream {
		switch {
		case reply.Error != "":
			writeJSON(w, http.StatusInternalServerError, speak.fault(http.StatusInternalServerError, "", reply.Error))
		case reply.Cut > 0:
			panic(http.ErrAbortHandler)
		default:
			writeJSON(w, http.StatusOK, speak.whole(st, reply))
		}
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	switch {
	case speak.stream(st, reply):
	case reply.Error != "":
		speak.broken(st, reply.Error)
	default:
		panic(http.ErrAbortHandler)
	}
}

// refuse writes an error instead of a stream.
func (a api) refuse(w http.ResponseWriter, r Reply) {
	if r.RetryAfter != "" {
		w.Header().Set("Retry-After", r.RetryAfter)
	}
	writeJSON(w, r.Status, a.fault(r.Status, r.Code, r.Message))
}

// stream writes a reply as say does, or its Raw.
func (a api) stream(s *stream, r Reply) bool {
	if r.Raw != "" {
		s.raw(r.Raw)
		return true
	}
	return a.say(s, r)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the agent may be gone
}
