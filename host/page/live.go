package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/access"
	"arbe.0sk.ar/runner/thread"
)

// Times of a live answer. The browser comes again when it ends, and so renews its session.
const (
	liveLife  = 5 * time.Minute
	shareLife = 30 * time.Second // of a share's: it may be revoked
	livePing  = 15 * time.Second
)

// mostTopics bounds the topics of one live answer.
const mostTopics = 64

// events writes server-sent events of several topics to one browser. An event "on" has the number of the topic that
// the events behind it are of; an answer about one topic alone has none. It keeps its first error, which means that the
// browser is gone.
type events struct {
	rc *http.ResponseController

	mu  sync.Mutex // guards the fields below
	w   http.ResponseWriter
	on  int // the topic of the events that were written last
	err error
}

// topic is the subject of a live answer: a thread, or the list. Its events do not come between those of others.
type topic struct {
	*events
	n int // its number in the answer; soleTopic for the only one

	id     string // of the thread; "" for the list
	follow func(context.Context, *topic) error
	stop   context.CancelFunc
}

// soleTopic is the number of the topic of an answer without numbers.
const soleTopic = -1

// startEvents begins a live answer.
func startEvents(w http.ResponseWriter) *events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	return &events{w: w, rc: http.NewResponseController(w), on: soleTopic}
}

// send writes an event with a JSON value.
func (t *topic) send(name string, v any) {
	t.write(appendEvent(nil, name, v))
}

// write writes events.
func (t *topic) write(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil && t.on != t.n {
		t.on = t.n
		_, t.err = fmt.Fprintf(t.w, "event: on\ndata: %d\n\n", t.n)
	}
	if t.err == nil {
		_, t.err = t.w.Write(b)
	}
}

// failed returns the first error of writing to the browser.
func (e *events) failed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// flush sends what was written, and reports whether the browser takes more.
func (e *events) flush() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = e.rc.Flush()
	}
	return e.err == nil
}

// ping keeps the connection busy.
func (e *events) ping() bool {
	e.mu.Lock()
	if e.err == nil {
		_, e.err = e.w.Write([]byte(": waiting\n\n"))
	}
	e.mu.Unlock()
	return e.flush()
}

// appendEvent appends an event with a JSON value.
func appendEvent(b []byte, name string, v any) []byte {
	b = append(b, "event: "+name+"\ndata: "...)
	return append(append(b, thread.Marshal(v)...), "\n\n"...)
}

// writeEvent writes an event with a JSON value.
func writeEvent(w io.Writer, name string, v any) error {
	_, err := w.Write(appendEvent(nil, name, v))
	return err
}

// wait returns true when there is news, and false when the answer has to end.
func wait(ctx context.Context, news <-chan struct{}) bool {
	select {
	case <-news:
		return true
	case <-ctx.Done():
		return false
	}
}

// live serves all that a browser follows as one answer, so that its tabs need one connection. Each "on" of the query is
// a topic, by its path: "list?state=done" or "t/ID?after=7".
func (p *page) live(w http.ResponseWriter, r *http.Request) error {
	s, err := p.viewer(w, r, "")
	if err != nil {
		return err
	}
	asked := r.URL.Query()["on"]
	if len(asked) == 0 || len(asked) > mostTopics {
		return refuse(http.StatusBadRequest, "on", "on: want 1 to %d topics", mostTopics)
	}
	var topics []*topic
	for n, one := range asked {
		t, err := p.topicOf(s, one)
		if err != nil {
			return err
		}
		t.n = n
		topics = append(topics, t)
	}
	p.serveLive(w, r, s, topics...)
	return nil
}

// topicOf returns the topic with a path.
func (p *page) topicOf(s access.Session, path string) (*topic, error) {
	at, err := url.Parse(path)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "on", "on: %.40q is no topic", path)
	}
	if at.Path == "list" {
		return p.listTopic(s, at.Query())
	}
	id, ok := strings.CutPrefix(at.Path, "t/")
	if !ok || !thread.ValidThread(id) {
		return nil, refuse(http.StatusBadRequest, "on", "on: %.40q is no topic", path)
	}
	return p.threadTopic(s, id, at.Query())
}

// serveLive serves topics until the browser has to come again. It ends with the session; a topic ends with the right
// to read its thread, too.
func (p *page) serveLive(w http.ResponseWriter, r *http.Request, s access.Session, topics ...*topic) {
	e := startEvents(w)
	ctx, cancel := context.WithCancel(r.Context())
	defer context.AfterFunc(p.Closing, cancel)()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, t := range topics {
		t.events = e
		own, stop := context.WithCancel(ctx)
		t.stop = stop
		all.Go(func() {
			defer stop()
			if !p.followTopic(own, t) {
				cancel()
			}
		})
	}
	life := liveLife
	if s.Share != "" {
		life = shareLife
	}
	end := time.NewTimer(min(life, time.Until(s.Until)))
	defer end.Stop()
	ping := time.NewTicker(livePing)
	defer ping.Stop()
	for {
		select {
		case <-ping.C:
			if !p.mayFollow(r.Context(), s, topics) || !e.ping() {
				return
			}
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// followTopic serves a topic, and reports whether the answer lasts without it: the browser has to come again where it
// was interrupted.
func (p *page) followTopic(ctx context.Context, t *topic) bool {
	err := t.follow(ctx, t)
	switch {
	case ctx.Err() != nil, t.failed() != nil:
		return true // the answer has ended
	case err == nil:
		return false
	case errors.Is(err, errEnded):
		return t.flush() && t.n != soleTopic
	case errors.Is(err, errInterrupted):
		return false
	case t.n != soleTopic && t.refuse(err):
		return true
	}
	p.Logger.Warn("live answer interrupted", "thread", t.id, "error", err)
	return false
}

// errEnded ends a topic for good: its last event has the reason.
var errEnded = errors.New("the topic has ended")

// mayFollow reports whether a session is open. A topic whose thread it may not read any more ends.
func (p *page) mayFollow(ctx context.Context, s access.Session, topics []*topic) bool {
	if p.check(ctx, s, "") != nil {
		return false
	}
	for _, t := range topics {
		if t.id == "" || s.Agent == "" {
			continue
		}
		err := p.check(ctx, s, t.id)
		if err != nil && (t.n == soleTopic || !t.refuse(err)) {
			return false
		}
	}
	return true
}

// refuse ends a topic that the browser may not have. It returns false for an error that may pass.
func (t *topic) refuse(err error) bool {
	why := problemOf(err)
	if why == nil || why.status >= http.StatusInternalServerError {
		return false
	}
	t.stop()
	t.send("refused", refused{why.message})
	return t.flush()
}

// refused is the end of a topic that the browser may not have.
type refused struct {
	Message string `json:"message"`
}
