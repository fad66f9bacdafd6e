package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// live is a live run, and the chats for its agent.
type live struct {
	*scene
	client *thread.Client
	r      *runner
	texts  map[string]string // of the chats, by their ids; "r1.prompt" is the task
	gates  int
	// unseen are the chats that no request of the model has to have: a command, and what a compaction has replaced.
	unseen map[string]bool
}

// newLive prepares a live run of an agent, whose task is the prompt.
func newLive(t *testing.T, name string, replies ...model.Reply) *live {
	t.Helper()
	versions := others(t)
	versions["pi"] = "0.87.1"
	s := newSceneOf(t, name, versions[name], replies...)
	s.args = append(s.args, "--live")
	s.prompt = "the task that stands first"
	token := s.arbe("token", "mint", "--thread", s.thread)
	return &live{
		scene: s, texts: map[string]string{"r1.prompt": s.prompt}, unseen: map[string]bool{},
		client: &thread.Client{Base: thread.BaseURL(server), Thread: s.thread, Token: thread.StaticToken(token)},
	}
}

// begin starts the run.
func (l *live) begin() { l.r = l.start() }

// post posts entries.
func (l *live) post(entries ...thread.Entry) {
	l.t.Helper()
	if _, err := l.client.Append(l.t.Context(), entries); err != nil {
		l.t.Fatal(err)
	}
}

// chat returns a chat, which is to be delivered.
func (l *live) chat(deliver, text string) thread.Entry {
	id := uuid.NewString()
	l.texts[id] = text
	return thread.Entry{
		ID: id, TS: thread.Stamp(time.Now()), AuthorID: "ada",
		Payload: thread.Marshal(thread.Chat{Type: thread.TypeChat, Text: text, Deliver: deliver}),
	}
}

// say posts a chat that is delivered as soon as the agent takes it, and returns its id.
func (l *live) say(text string) string { return l.sayAs("", text) }

// sayAs posts a chat, and returns its id.
func (l *live) sayAs(deliver, text string) string {
	l.t.Helper()
	e := l.chat(deliver, text)
	l.post(e)
	return e.ID
}

// turns returns the signals of ended turns.
func (l *live) turns() (all []thread.Waiting) {
	l.t.Helper()
	seen := map[string]bool{}
	for _, e := range l.entries() {
		if f, err := thread.Scan(e.Payload); err != nil || f.Type != thread.TypeWaiting {
			continue
		}
		if run, ok := thread.RunOf(e.ID); seen[e.ID] || !ok || run != "r1" {
			l.t.Errorf("a turn's signal is %s", e.ID)
		}
		seen[e.ID] = true
		all = append(all, payload[thread.Waiting](l.t, e))
	}
	return all
}

// waits waits until the agent waits for the n-th time, and returns that signal.
func (l *live) waits(n int) (w thread.Waiting) {
	l.t.Helper()
	l.until(fmt.Sprintf("the end of turn %d", n), func() bool {
		all := l.turns()
		if len(all) < n {
			return false
		}
		w = all[n-1]
		return true
	})
	return w
}

// until waits for something, unless the runner ends before. A runner that ends fails the test with its log.
func (l *live) until(what string, f func() bool) {
	l.t.Helper()
	defer func() {
		if l.t.Failed() {
			l.t.Logf("the model was asked %d times; the runner's log:\n%s\nthe thread:\n%.30000s",
				len(l.model.Requests()), l.r.stderr.String(), textOf(l.entries()))
		}
	}()
	until(l.t, what, f)
}

// requests waits until the model has been asked n times.
func (l *live) requests(n int) {
	l.t.Helper()
	l.until(fmt.Sprintf("request %d", n), func() bool { return len(l.model.Requests()) >= n })
}

// named returns the chats that the lines of the thread have on record, in order.
func (l *live) named() (ids []string) {
	l.t.Helper()
	for _, e := range l.entries() {
		if p := thread.ParseLine(e.Payload); p.Names() {
			ids = append(ids, p.Named()...)
		}
	}
	return ids
}

// has waits until the session has a chat on record.
func (l *live) has(id string) {
	l.t.Helper()
	l.until("the delivery of "+l.texts[id], func() bool { return slices.Contains(l.named(), id) })
}

// finish asks the run to end, and checks its end.
func (l *live) finish(status string, exit int) {
	l.t.Helper()
	l.post(l.endRequested())
	l.ended(status, exit)
}

// endRequested returns a request to do what is queued and to end.
func (l *live) endRequested() thread.Entry {
	return thread.Entry{
		ID: uuid.NewString(), TS: thread.Stamp(time.Now()), AuthorID: "ada",
		Payload: thread.Marshal(thread.EndRequested{Signal: thread.Signal{
			Type: thread.TypeEnd, RunID: "r1", Harness: l.agent.Harness,
		}}),
	}
}

// ended waits for the run's end, and checks it.
func (l *live) ended(status string, exit int) {
	l.t.Helper()
	if got := l.status(l.r); got != exit {
		l.t.Errorf("exit status %d, want %d", got, exit)
	}
	if got := l.end().Status; got != status {
		l.t.Errorf("the run is %s, want %s", got, status)
	}
}

// check checks that the session has these chats on record, once each and in this order, that each is on the thread once
// and in what the model was asked last, and that the others are pending or were refused.
func (l *live) check(want ...string) {
	l.t.Helper()
	if l.t.Failed() {
		return
	}
	entries := l.entries()
	if got := l.named(); !slices.Equal(got, want) {
		l.t.Errorf("delivered:\n%s\nwant:\n%s", l.words(got), l.words(want))
	}
	refused := map[string]bool{}
	left := l.pendingChats()
	for _, e := range entries {
		switch line := thread.ParseLine(e.Payload); {
		case line.Type == thread.TypeChat && line.Session != nil:
			l.t.Errorf("%s is a second chat: %.300s", e.ID, e.Payload)
		case line.Type == thread.TypeRefused:
			refused[line.Chat] = true
		case line.Names() && len(line.Named()) == 1:
			if text := l.texts[line.Named()[0]]; !holds(line.Line, text) {
				l.t.Errorf("%s does not have the text of its chat %.200q: %.500s", e.ID, text, line.Line)
			}
		}
	}
	for id := range l.texts {
		pending := slices.ContainsFunc(left, func(c thread.PendingChat) bool { return c.ID == id })
		if pending == (slices.Contains(want, id) || refused[id] || id == "r1.prompt") {
			l.t.Errorf("%.200q is pending: %v", l.texts[id], pending)
		}
	}
	l.complete(entries)
	all := l.model.Requests()
	for _, id := range want {
		if n := occurrences(all[len(all)-1].Body, l.texts[id]); n != 1 && !l.unseen[id] {
			l.t.Errorf("the model was told %.200q %d times", l.texts[id], n)
		}
	}
}

// pendingChats are the chats that no run has had.
func (l *live) pendingChats() []thread.PendingChat {
	var p thread.Pending
	for _, e := range l.entries() {
		p.Add(e)
	}
	return p.Chats()
}

// words are the beginnings of chats' texts.
func (l *live) words(ids []string) string {
	var all []string
	for _, id := range ids {
		all = append(all, fmt.Sprintf("%.60q", l.texts[id]))
	}
	return strings.Join(all, "\n")
}

// holds reports whether a text stands in a string of a JSON text.
func holds(b []byte, text string) bool { return occurrences(b, text) > 0 }

// occurrences counts a text in the strings of a JSON text.
func occurrences(b []byte, text string) (n int) {
	var v any
	if json.Unmarshal(b, &v) != nil {
		return 0
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			n += strings.Count(v, text)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(v)
	return n
}

// gate is a tool call that is at work until it is opened.
type gate struct {
	l     *live
	name  string
	reply model.Reply
}

// gate returns a gate for the agent.
func (l *live) gate() gate {
	l.t.Helper()
	l.gates++
	g := gate{l: l, name: filepath.Join(l.dir, "work", fmt.Sprint("gate", l.gates))}
	wait := fmt.Sprintf("touch %[1]s.begun; until [ -e %[1]s.open ]; do sleep 0.05; done", g.name)
	g.reply = calling(l.agent.Harness, wait)
	l.t.Cleanup(g.open)
	return g
}

// begun waits until the tool is at work, and the thread has the call.
func (g gate) begun() {
	g.l.t.Helper()
	g.l.until("the tool is at work", func() bool {
		_, err := os.Stat(g.name + ".begun")
		return err == nil
	})
}

// open lets the tool end.
func (g gate) open() {
	if err := os.WriteFile(g.name+".open", nil, 0o600); err != nil {
		g.l.t.Error(err)
	}
}

// slowly is a reply that takes 50 ms a word.
func slowly(words int) model.Reply {
	return model.Reply{Text: strings.Repeat("word ", words), Pace: model.Duration(50 * time.Millisecond)}
}

// fine are replies for whatever is still asked.
var fine = model.Reply{Text: "Fine.", Times: -1}
