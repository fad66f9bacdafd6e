package chaos_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// threads is a thread server in memory, on the schedule's own clock.
type threads struct {
	mu       sync.Mutex
	list     map[string][]thread.Entry
	byID     map[string]map[string]thread.Entry
	since    time.Time // writableSince
	appended func(id string, e thread.Entry)
}

const installation = "chaos-installation"

func newThreads() *threads {
	return &threads{list: map[string][]thread.Entry{}, byID: map[string]map[string]thread.Entry{}, since: time.Now()}
}

// writable sets the time since which the server takes appends.
func (s *threads) writable(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = since
}

// fault is what happens to one request.
type fault int

const (
	fine     fault = iota
	lost           // the request does not arrive
	unheard        // it is applied, and the answer is lost
	refused        // 503
	portal         // 404 with a page of HTML
	hanging        // no answer until the client gives up
	slow           // an answer after a while
	mostFine = 8   // of how many requests one meets a fault, where faults are on
)

var errLost = errors.New("connection reset by the schedule")

// serve answers one request.
func (s *threads) serve(req *http.Request) *http.Response {
	answer := func(status int, header map[string]string, body []byte) *http.Response {
		h := http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}
		for k, v := range header {
			h.Set(k, v)
		}
		return &http.Response{
			StatusCode: status,
			Status:     strconv.Itoa(status),
			Header:     h,
			Body:       io.NopCloser(bytes.NewReader(body)),
			Request:    req,
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.URL.Path == "/healthz" {
		return answer(
			200,
			nil,
			fmt.Appendf(nil, `{"installation":%q,"writableSince":%q}`, installation, thread.Stamp(s.since)),
		)
	}
	id, ok := strings.CutPrefix(req.URL.Path, "/api/stream/arbe-thread-")
	if !ok {
		return answer(404, nil, nil)
	}
	if req.Method == http.MethodPost {
		body, _ := io.ReadAll(req.Body)
		status, text := s.append(id, body)
		return answer(status, map[string]string{"Content-Type": "application/json"}, []byte(text))
	}
	list, there := s.list[id]
	if !there {
		return answer(404, nil, []byte(`{"error":{"code":"not_found","message":"no such thread"}}`))
	}
	from, _ := strconv.Atoi(req.URL.Query().Get("offset"))
	var b bytes.Buffer
	for _, e := range list[min(from, len(list)):] {
		line, _ := json.Marshal(e)
		b.Write(append(line, '\n'))
	}
	return answer(
		200,
		map[string]string{
			"Stream-Next-Offset": strconv.Itoa(len(list)),
			"Stream-Up-To-Date":  "true",
			"Content-Type":       "application/x-ndjson",
		},
		b.Bytes(),
	)
}

// append appends all entries of a post or none.
func (s *threads) append(id string, body []byte) (int, string) {
	var entries []thread.Entry
	if json.Unmarshal(body, &entries) != nil {
		var one thread.Entry
		if err := json.Unmarshal(body, &one); err != nil {
			return 400, `{"error":{"code":"bad","message":"not an entry"}}`
		}
		entries = []thread.Entry{one}
	}
	if s.byID[id] == nil {
		s.byID[id] = map[string]thread.Entry{}
	}
	var fresh []thread.Entry
	for i, e := range entries {
		old, taken := s.byID[id][e.ID]
		if taken && !equal(old.Payload, e.Payload) {
			return 409, fmt.Sprintf(
				`{"error":{"code":"conflict","message":"taken","entries":[{"index":%d,"id":%q,"reason":"taken"}]}}`,
				i,
				e.ID,
			)
		}
		if !taken {
			e.At = thread.Stamp(time.Now())
			fresh = append(fresh, e)
		}
	}
	for _, e := range fresh {
		s.byID[id][e.ID] = e
		s.list[id] = append(s.list[id], e)
		if s.appended != nil {
			s.appended(id, e)
		}
	}
	return 200, fmt.Sprintf(
		`{"nextOffset":"%d","appended":%d,"duplicates":%d}`,
		len(s.list[id]),
		len(fresh),
		len(entries)-len(fresh),
	)
}

func equal(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// entries are those of a thread.
func (s *threads) entries(id string) []thread.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]thread.Entry(nil), s.list[id]...)
}

// wire is how one process reaches the thread server.
type wire struct {
	w *world
	p *process // nil for the runners in the boxes
}

func (t wire) RoundTrip(req *http.Request) (*http.Response, error) {
	f := t.w.fault()
	if t.p != nil {
		dies, applied := t.p.step()
		switch {
		case dies && applied:
			f = unheard
		case dies:
			f = lost
		}
		if t.p.dead() && !dies {
			return nil, errKilled
		}
	} else if t.w.partitioned() {
		f = lost
	}
	switch f {
	case lost:
		return nil, errLost
	case unheard:
		t.w.threads.serve(req)
		return nil, errLost
	case refused:
		return &http.Response{StatusCode: 503, Status: "503", Header: http.Header{}, Body: http.NoBody, Request: req},
			nil
	case portal:
		h := http.Header{"Content-Type": {"text/html"}}
		return &http.Response{
			StatusCode: 404,
			Status:     "404",
			Header:     h,
			Body:       io.NopCloser(strings.NewReader("<html>not here</html>")),
			Request:    req,
		}, nil
	case hanging:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case slow:
		time.Sleep(20 * time.Second)
	}
	return t.w.threads.serve(req), nil
}

func (w *world) client(p *process, id string) *client.Client {
	return &client.Client{
		Base: "http://threads.test/api/stream", Thread: id, Token: client.StaticToken("t"), HTTP: &http.Client{Transport: wire{w, p}},
	}
}
