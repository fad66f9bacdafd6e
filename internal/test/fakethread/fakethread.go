// Package fakethread is a thread server for tests. It keeps entries in memory, can fail each call, applied or not
// applied, and fails the test when a client does what must not happen: a gap or a wrong order in a session's lines, an
// id with another payload, an entry after a run's end.
package fakethread

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Call is one request that came.
type Call struct {
	N       int // counts from 1
	Method  string
	Path    string
	Token   string         // that it brought
	Entries []thread.Entry // of a post
	Array   bool           // they came as an array
	Live    bool           // a read that is to wait for entries
	Renewal bool           // a post to /token
	Query   url.Values     // of a read
}

// Fault is how a call fails. With the zero value it succeeds.
type Fault struct {
	Status  int               // the answer, instead of a success
	Header  map[string]string // of the answer
	Body    string            // of the answer
	Drop    bool              // no answer: the connection breaks off
	Hang    bool              // no answer, until the client gives up or the test ends
	Applied bool              // the entries are kept, although the call fails
	Late    time.Duration     // a success is answered so late
	Pace    time.Duration     // of a read: the time before each entry
	Cut     int               // of a read: bytes of the answer after which the connection breaks off; 0 for none
}

// Server is one thread.
type Server struct {
	URL   string
	Token string // what the client must bring

	t       testing.TB
	hook    func(Call) Fault
	old     bool
	deaf    bool // takes no live reads
	page    int  // entries of one answer at most; 0 for all
	whole   bool // ignores limit, before and types, and has no single entries
	refuses bool // answers 400 to limit, before and types, and has no single entries
	sent    int  // bytes of reads
	renew   string
	fresh   int // tokens that were renewed
	gaps    bool
	anew    bool
	done    chan struct{}
	mu      sync.Mutex
	calls   int
	hooked  int // calls whose hook has returned; under the lock, so that the next call's has what it has written
	list    []thread.Entry
	grew    chan struct{} // closed, and made anew, when an entry is added
	byID    map[string]thread.Entry
	index   map[string]int       // of the next line, by session
	current string               // the run that began last
	ended   map[string]time.Time // when the terminals of runs came
	beats   map[string]int       // heartbeats that were made after that
	broken  []string
	allow   map[string]bool // ids that may come with another payload
}

// New starts a server for the test. It calls hook, if that is not nil, for each call. Calls at the same time are calls
// of hook at the same time.
func New(t testing.TB, hook func(Call) Fault) *Server {
	s := &Server{
		Token: "fake-thread-token", t: t, hook: hook, done: make(chan struct{}), byID: map[string]thread.Entry{},
		index: map[string]int{},
		ended: map[string]time.Time{}, beats: map[string]int{}, allow: map[string]bool{}, grew: make(chan struct{}),
	}
	srv := httptest.NewServer(s)
	s.URL = srv.URL
	t.Cleanup(func() {
		close(s.done)
		srv.CloseClientConnections()
		srv.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, b := range s.broken {
			t.Error("fakethread: " + b)
		}
	})
	return s
}

// Old makes the server an older one, with single posts only.
func (s *Server) Old() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.old = true
	return s
}

// NoLive makes the server one that answers 400 to a read that is to wait.
func (s *Server) NoLive() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = true
	return s
}

// Whole makes the server one that ignores limit, before and types, and gives no single entries.
func (s *Server) Whole() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = true
	return s
}

// RefusesPieces makes the server one that answers 400 to limit, before and types, and gives no single entries.
func (s *Server) RefusesPieces() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses = true
	return s
}

// Sent returns how many bytes of entries all reads got.
func (s *Server) Sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// Delete removes the thread.
func (s *Server) Delete() { s.Restore(0) }

// Compact removes the entries that are meant, as a server does with old heartbeats. The offsets stay.
func (s *Server) Compact(meant func(thread.Entry) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.Clone(s.list)
	for i, e := range s.list {
		if meant(e) {
			s.list[i] = thread.Entry{}
		}
	}
}

// Paged makes the server answer a read with at most n entries.
func (s *Server) Paged(n int) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.page = n
	return s
}

// Renew makes the server give a new token for the renew token. Each makes the ones before it worthless.
func (s *Server) Renew(token string) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renew = token
	return s
}

// Renewals is how many new tokens were given.
func (s *Server) Renewals() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fresh
}

// Restore makes the thread what it was when it had n entries, as a server does that is restored from a backup.
func (s *Server) Restore(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.list[n:] {
		delete(s.byID, e.ID)
	}
	s.list = s.list[:n:n]
	s.anew = true
	close(s.grew) // waiting readers are answered
	s.grew = make(chan struct{})
}

// Allow lets an id come with another payload, which is answered with 409 and held against nobody.
func (s *Server) Allow(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allow[id] = true
}

// Gaps lets lines be missing: those that the server has refused.
func (s *Server) Gaps() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps = true
}

// Rewritten lets the indexes of lines begin anew: the test writes the session file anew.
func (s *Server) Rewritten() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.anew = true
}

// Current is what the client must bring.
func (s *Server) Current() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Token
}

// SetToken changes what the client must bring.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Token = token
}

// Client is a client of the server.
func (s *Server) Client() *client.Client {
	return &client.Client{Base: thread.BaseURL(s.URL), Thread: "t1", Token: client.StaticToken(s.Token)}
}

// Put puts an entry on the thread, as somebody else would.
func (s *Server) Put(e thread.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(e)
}

// Entries are those that the thread has.
func (s *Server) Entries() []thread.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]thread.Entry(nil), s.list...)
}

// patience is how long Await waits for an entry that a mistake keeps away.
const patience = 5 * time.Minute

// Await waits until the thread has an entry that is meant, which it returns; the test fails when none comes.
func (s *Server) Await(meant func(thread.Entry) bool) thread.Entry {
	s.t.Helper()
	late := time.After(patience)
	for seen := 0; ; {
		s.mu.Lock()
		list, grew := s.list, s.grew
		s.mu.Unlock()
		for ; seen < len(list); seen++ {
			if meant(list[seen]) {
				return list[seen]
			}
		}
		select {
		case <-grew:
		case <-late:
			s.t.Fatalf("fakethread: %d entries, and none of them is the awaited one", len(list))
		}
	}
}

// Calls is how many requests came.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client broke off
	}
	s.mu.Lock()
	s.calls++
	call := Call{
		N: s.calls, Method: r.Method, Path: r.URL.Path,
		Token: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
		Query: r.URL.Query(),
		Live:  r.URL.Query().Get("live") != "", Renewal: strings.HasSuffix(r.URL.Path, "/token"),
	}
	old := s.old
	s.mu.Unlock()
	if call.Renewal {
		body = []byte("[]")
	}
	raws := []json.RawMessage{body}
	if call.Array = bytes.HasPrefix(body, []byte("[")); call.Array {
		if err := json.Unmarshal(body, &raws); err != nil {
			s.breach("a post that is no JSON: %v", err)
		}
	}
	if r.Method == http.MethodPost {
		for _, raw := range raws {
			e, err := thread.ParseEntry(raw)
			if err != nil {
				s.breach("a bad entry: %v", err)
			}
			call.Entries = append(call.Entries, e)
		}
	}
	var f Fault
	if s.hook != nil {
		f = s.hook(call)
		s.mu.Lock()
		s.hooked++
		s.mu.Unlock()
	}
	if f.Applied {
		s.apply(call)
	}
	switch {
	case f.Hang:
		select {
		case <-r.Context().Done():
		case <-s.done:
		}
		return
	case f.Drop:
		panic(http.ErrAbortHandler)
	case f.Status != 0:
		for k, v := range f.Header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, f.Body)
		return
	case call.Renewal:
		s.renewal(w, call.Token)
		return
	case !s.knows(call.Token):
		http.Error(w, `{"error":{"code":"invalid_token","message":"bad token"}}`, http.StatusUnauthorized)
		return
	case r.Method == http.MethodGet:
		if f.Cut > 0 {
			w = &cutting{ResponseWriter: w, left: f.Cut}
		}
		if _, id, ok := strings.Cut(r.URL.Path, "/entries/"); ok {
			s.entry(w, r, id)
		} else {
			s.read(w, r, old, f.Pace)
		}
		return
	case old && call.Array:
		http.Error(w, "id is required", http.StatusBadRequest)
		return
	}
	bad, next, known := s.apply(call)
	if f.Late > 0 {
		select {
		case <-time.After(f.Late): // this is the fault
		case <-r.Context().Done():
		case <-s.done:
		}
	}
	if bad == nil {
		if old {
			_, _ = io.WriteString(w, `{"ok":true}`)
		} else {
			fmt.Fprintf(w, `{"nextOffset":"%d","appended":%d,"duplicates":%d}`, next, len(call.Entries)-known, known)
		}
		return
	}
	w.WriteHeader(http.StatusConflict)
	if old {
		_, _ = io.WriteString(w, "conflict")
		return
	}
	_ = json.NewEncoder(w).
		Encode(map[string]any{"error": map[string]any{"code": "conflict", "message": "taken", "entries": bad}})
}

func (s *Server) knows(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return token == s.Token
}

// renewal gives a new token for the renew token.
func (s *Server) renewal(w http.ResponseWriter, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.renew == "":
		http.Error(w, "no such page", http.StatusNotFound)
	case token != s.renew:
		http.Error(w, `{"error":{"code":"invalid_token","message":"bad token"}}`, http.StatusUnauthorized)
	default:
		s.fresh++
		s.Token = fmt.Sprintf("fake-fresh-token-%d", s.fresh)
		fmt.Fprintf(w, `{"jwt":%q,"expiresAt":"x"}`, s.Token)
	}
}

func (s *Server) breach(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = append(s.broken, fmt.Sprintf(format, args...))
}

// apply appends all of the entries or none, and returns those that conflict; where none does, the offset behind them
// and how many were known.
func (s *Server) apply(call Call) (bad []thread.BadEntry, next, known int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range call.Entries {
		if was, ok := s.byID[e.ID]; ok && !samePayload(was.Payload, e.Payload) {
			bad = append(bad, thread.BadEntry{Index: i, ID: e.ID, Reason: "taken"})
			if !s.allow[e.ID] {
				s.broken = append(
					s.broken,
					fmt.Sprintf("%s came again with another payload:\nfirst %s\nnow   %s", e.ID, was.Payload,
						e.Payload),
				)
			}
		}
	}
	if bad != nil {
		return bad, 0, 0
	}
	for _, e := range call.Entries {
		if _, ok := s.byID[e.ID]; ok {
			known++
		} else {
			s.add(e)
		}
	}
	return nil, len(s.list), known
}

func samePayload(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// add appends an entry and looks whether it may come now. A heartbeat that was made before its run's end came may cross
// it on the wire, as may several of a slow client.
func (s *Server) add(e thread.Entry) {
	var p thread.Line
	var run struct {
		RunID  string `json:"runId"`
		Status string `json:"status"`
		Type   string `json:"type"`
	}
	_ = json.Unmarshal(e.Payload, &run) // a type whose members mean something else is looked at below
	if json.Unmarshal(e.Payload, &p) == nil && p.Session != nil {
		if want := s.index[p.Session.ID]; p.Session.Index != want && !s.anew && (!s.gaps || p.Session.Index < want) {
			s.broken = append(
				s.broken,
				fmt.Sprintf("line %d of session %s came where line %d was due", p.Session.Index, p.Session.ID, want),
			)
		}
		s.index[p.Session.ID] = p.Session.Index + 1
		if !s.ended[s.current].IsZero() {
			s.broken = append(s.broken, fmt.Sprintf("line %s came after the end of run %s", e.ID, s.current))
		}
	}
	end, ofEnd := s.ended[run.RunID], strings.HasPrefix(e.ID, run.RunID+".end.")
	if strings.HasPrefix(run.Type, "signal.") && !end.IsZero() && !ofEnd {
		// TS is of this machine's clock, in milliseconds; the zero time for one that is no time.
		if made, _ := time.Parse(time.RFC3339, e.TS); made.After(end) {
			s.beats[run.RunID]++
		}
		// One is due while the terminal is sent, and one announces that there are few from now on.
		if run.Type != thread.TypeHeartbeat || s.beats[run.RunID] > 2 {
			s.broken = append(s.broken, fmt.Sprintf("%s came after the end of run %s", e.ID, run.RunID))
		}
	}
	if run.Type == thread.TypeStatus && run.Status == thread.StatusRunning {
		s.current = run.RunID
	} else if run.Type == thread.TypeStatus && !strings.HasPrefix(e.ID, run.RunID+".orphan.") {
		// which is the host's guess
		s.ended[run.RunID] = time.Now()
	}
	e.At = thread.Stamp(time.Now())
	s.byID[e.ID] = e
	s.list = append(s.list, e)
	close(s.grew)
	s.grew = make(chan struct{})
}
