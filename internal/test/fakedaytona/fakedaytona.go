// Package fakedaytona is a double of Daytona v0 for tests: its control plane, its proxy, and the daemon in each box.
// A box is a directory on this machine in which real processes run, started by a real shell, so that what is meant
// for a box can be run in one.
//
// The double has the traps of the original: a deleted box is 401 at the proxy, a dead daemon is an empty 502 while
// the box is still "started", a command comes on its shell's standard input, deleting a session kills what was
// detached in it, and so on.
//
// What differs: paths in a box are those of this machine, and what is outside of the box cannot be written to through
// the files API; the clock of idle boxes moves by Tick alone, or with real time when Tick is called; a box's
// processes are found by their environment and working directory, and a process that has changed both outlives its
// box. Git is the program, not go-git. An image is a name, and a volume a record: a box has neither's files. There is
// no PTY, no port, no preview, no snapshot or code-run: those answer 404.
//
// A session id that is a path fails the test, because the original makes and removes that path.
package fakedaytona

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Version is the daemon's.
const Version = "v0.190.0"

// Server is a Daytona of its own. Its settings may be made until the first request, and by Set at any time.
type Server struct {
	URL string // of the control plane, with /api
	Key string // the API key that it accepts

	Fault        func(r *http.Request) Fault // is asked before each request; nil for no faults
	StartAfter   time.Duration               // how long a box is creating, or starting
	DestroyAfter time.Duration               // how long a box is destroying
	ListLag      time.Duration               // how long a box that is gone is still listed, as it was
	// how long the proxy believes that a box which it has seen is there; the original's is 2 minutes
	ProxyCache time.Duration
	FailStart  string   // the reason why no new box starts; "" where they do
	Snapshots  []string // that are known; the first is the default
	Images     []string // that a box can be built from
	Volumes    []Volume

	t    testing.TB
	http *httptest.Server
	mux  *http.ServeMux

	mu       sync.Mutex
	skipped  time.Duration // how far Tick has moved the clock
	seq      int
	boxes    map[string]*box
	requests []Request
}

// Fault is how a request fails. With the zero value it succeeds.
type Fault struct {
	Status int // the answer, instead of the right one
	Body   string
	Header http.Header
	Drop   bool // no answer: the connection breaks off
	After  bool // the request does what it does, and then its answer is lost
}

// Request is one that came.
type Request struct {
	Method string
	Path   string // with the query
	Header []string
	Body   []byte // where it is JSON
}

// New starts a server for the test. When the test ends, so does what runs in the boxes, and their directories are
// removed.
func New(t testing.TB) *Server {
	s := &Server{
		Key: "dtn_fake-daytona-key", Snapshots: []string{"daytonaio/sandbox:0.5.0-slim", "daytonaio/sandbox:0.8.0", medium},
		Images: []string{"node:22-bookworm"},
		t:      t, mux: http.NewServeMux(), boxes: map[string]*box{},
	}
	s.routes()
	s.http = httptest.NewUnstartedServer(s)
	s.http.Start()
	s.URL = s.http.URL + "/api"
	t.Cleanup(func() {
		s.mu.Lock()
		for _, b := range s.boxes {
			s.destroy(b)
		}
		s.mu.Unlock()
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Set changes settings while requests may come. That is also for a client that is another program: the race detector
// sees no order between what a test did before it started one and what that asks.
func (s *Server) Set(change func(*Server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// Requests are those that came, in their order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Tick moves the clock, and stops or destroys the boxes that have been idle for too long.
func (s *Server) Tick(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipped += d
	s.reapIdle()
}

// now is the server's time. The caller holds s.mu.
func (s *Server) now() time.Time { return time.Now().Add(s.skipped) }

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, hook, err := s.record(r)
	if err != nil {
		return // the client broke off
	}
	var f Fault
	if hook != nil {
		f = hook(r)
	}
	if body != nil {
		r.Body = io.NopCloser(bytes.NewReader(body)) // anew: the hook may have read it
	}
	if f.After {
		s.mux.ServeHTTP(httptest.NewRecorder(), r)
	}
	switch {
	case f.Drop, f.After && f.Status == 0:
		panic(http.ErrAbortHandler)
	case f.Status != 0:
		maps.Copy(w.Header(), f.Header)
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, f.Body)
	default:
		s.mux.ServeHTTP(w, r)
	}
}

// record keeps what was asked, and returns the body where it is JSON, and the hook to ask about it.
func (s *Server) record(r *http.Request) ([]byte, func(*http.Request) Fault, error) {
	q := Request{Method: r.Method, Path: r.URL.RequestURI(), Header: slices.Sorted(maps.Keys(r.Header))}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		var err error
		if q.Body, err = io.ReadAll(r.Body); err != nil {
			return nil, nil, fmt.Errorf("read the body: %w", err)
		}
		r.Body = io.NopCloser(bytes.NewReader(q.Body))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, q)
	return q.Body, s.Fault, nil
}
