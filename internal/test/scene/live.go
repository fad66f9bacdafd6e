package scene

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
	"arbe.0sk.ar/runner/thread/client"
)

// Live is a live run, and the chats for its agent.
type Live struct {
	*Scene
	client *client.Client
	R      *Runner
	Texts  map[string]string // of the chats, by their ids; "r1.prompt" is the task
	gates  int
	// unseen are the chats that no request of the model has to have: a command, and what a compaction has replaced.
	Unseen map[string]bool
}

// NewLive prepares a live run of an agent, whose task is the prompt.
func NewLive(t *testing.T, name string, replies ...model.Reply) *Live {
	t.Helper()
	versions := Others(t)
	versions["pi"] = "0.87.1"
	s := NewOf(t, name, versions[name], replies...)
	s.Args = append(s.Args, "--live")
	s.Prompt = "the task that stands first"
	token := s.Arbe("token", "mint", "--thread", s.Thread)
	return &Live{
		Scene: s, Texts: map[string]string{"r1.prompt": s.Prompt}, Unseen: map[string]bool{},
		client: &client.Client{Base: thread.BaseURL(Server), Thread: s.Thread, Token: client.StaticToken(token)},
	}
}

// Begin starts the run.
func (l *Live) Begin() { l.R = l.Start() }

// Post posts entries.
func (l *Live) Post(entries ...thread.Entry) {
	l.T.Helper()
	if _, err := l.client.Append(l.T.Context(), entries); err != nil {
		l.T.Fatal(err)
	}
}

// Chat returns a chat, which is to be delivered.
func (l *Live) Chat(deliver, text string) thread.Entry {
	id := uuid.NewString()
	l.Texts[id] = text
	return thread.Entry{
		ID: id, TS: thread.Stamp(time.Now()), AuthorID: "ada",
		Payload: thread.Marshal(thread.Chat{Type: thread.TypeChat, Text: text, Deliver: deliver}),
	}
}

// Say posts a chat that is delivered as soon as the agent takes it, and returns its id.
func (l *Live) Say(text string) string { return l.SayAs("", text) }

// SayAs posts a chat, and returns its id.
func (l *Live) SayAs(deliver, text string) string {
	l.T.Helper()
	e := l.Chat(deliver, text)
	l.Post(e)
	return e.ID
}

// Turns returns the signals of ended turns.
func (l *Live) Turns() (all []thread.Waiting) {
	l.T.Helper()
	seen := map[string]bool{}
	for _, e := range l.Entries() {
		if f, err := thread.Scan(e.Payload); err != nil || f.Type != thread.TypeWaiting {
			continue
		}
		if run, ok := thread.RunOf(e.ID); seen[e.ID] || !ok || run != "r1" {
			l.T.Errorf("a turn's signal is %s", e.ID)
		}
		seen[e.ID] = true
		all = append(all, Payload[thread.Waiting](l.T, e))
	}
	return all
}

// Waits waits until the agent waits for the n-th time, and returns that signal.
func (l *Live) Waits(n int) (w thread.Waiting) {
	l.T.Helper()
	l.Until(fmt.Sprintf("the end of turn %d", n), func() bool {
		all := l.Turns()
		if len(all) < n {
			return false
		}
		w = all[n-1]
		return true
	})
	return w
}

// Until waits for something, unless the runner ends before. A runner that ends fails the test with its log.
func (l *Live) Until(what string, f func() bool) {
	l.T.Helper()
	defer func() {
		if l.T.Failed() {
			l.T.Logf("the model was asked %d times; the runner's log:\n%s\nthe thread:\n%.30000s",
				len(l.Model.Requests()), l.R.Log.String(), TextOf(l.Entries()))
		}
	}()
	Until(l.T, what, f)
}

// Requests waits until the model has been asked n times.
func (l *Live) Requests(n int) {
	l.T.Helper()
	l.Until(fmt.Sprintf("request %d", n), func() bool { return len(l.Model.Requests()) >= n })
}

// Named returns the chats that the lines of the thread have on record, in order.
func (l *Live) Named() (ids []string) {
	l.T.Helper()
	for _, e := range l.Entries() {
		if p := thread.ParseLine(e.Payload); p.Names() {
			ids = append(ids, p.Named()...)
		}
	}
	return ids
}

// Has waits until the session has a chat on record.
func (l *Live) Has(id string) {
	l.T.Helper()
	l.Until("the delivery of "+l.Texts[id], func() bool { return slices.Contains(l.Named(), id) })
}

// Finish asks the run to end, and checks its end.
func (l *Live) Finish(status string, exit int) {
	l.T.Helper()
	l.Post(l.EndRequested())
	l.Ended(status, exit)
}

// EndRequested returns a request to do what is queued and to end.
func (l *Live) EndRequested() thread.Entry {
	return thread.Entry{
		ID: uuid.NewString(), TS: thread.Stamp(time.Now()), AuthorID: "ada",
		Payload: thread.Marshal(thread.EndRequested{Signal: thread.Signal{
			Type: thread.TypeEnd, RunID: "r1", Harness: l.Agent.Harness,
		}}),
	}
}

// Ended waits for the run's end, and checks it.
func (l *Live) Ended(status string, exit int) {
	l.T.Helper()
	if got := l.Status(l.R); got != exit {
		l.T.Errorf("exit status %d, want %d", got, exit)
	}
	if got := l.End().Status; got != status {
		l.T.Errorf("the run is %s, want %s", got, status)
	}
}

// Check checks that the session has these chats on record, once each and in this order, that each is on the thread once
// and in what the model was asked last, and that the others are pending or were refused.
func (l *Live) Check(want ...string) {
	l.T.Helper()
	if l.T.Failed() {
		return
	}
	entries := l.Entries()
	if got := l.Named(); !slices.Equal(got, want) {
		l.T.Errorf("delivered:\n%s\nwant:\n%s", l.Words(got), l.Words(want))
	}
	refused := map[string]bool{}
	left := l.PendingChats()
	for _, e := range entries {
		switch line := thread.ParseLine(e.Payload); {
		case line.Type == thread.TypeChat && line.Session != nil:
			l.T.Errorf("%s is a second chat: %.300s", e.ID, e.Payload)
		case line.Type == thread.TypeRefused:
			refused[line.Chat] = true
		case line.Names() && len(line.Named()) == 1:
			if text := l.Texts[line.Named()[0]]; !holds(line.Line, text) {
				l.T.Errorf("%s does not have the text of its chat %.200q: %.500s", e.ID, text, line.Line)
			}
		}
	}
	for id := range l.Texts {
		pending := slices.ContainsFunc(left, func(c thread.PendingChat) bool { return c.ID == id })
		if pending == (slices.Contains(want, id) || refused[id] || id == "r1.prompt") {
			l.T.Errorf("%.200q is pending: %v", l.Texts[id], pending)
		}
	}
	l.Complete(entries)
	all := l.Model.Requests()
	for _, id := range want {
		if n := occurrences(all[len(all)-1].Body, l.Texts[id]); n != 1 && !l.Unseen[id] {
			l.T.Errorf("the model was told %.200q %d times", l.Texts[id], n)
		}
	}
}

// PendingChats are the chats that no run has had.
func (l *Live) PendingChats() []thread.PendingChat {
	var p thread.Pending
	for _, e := range l.Entries() {
		p.Add(e)
	}
	return p.Chats()
}

// Words are the beginnings of chats' texts.
func (l *Live) Words(ids []string) string {
	var all []string
	for _, id := range ids {
		all = append(all, fmt.Sprintf("%.60q", l.Texts[id]))
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

// Gate is a tool call that is at work until it is opened.
type Gate struct {
	l     *Live
	name  string
	Reply model.Reply
}

// Gate returns a gate for the agent.
func (l *Live) Gate() Gate {
	l.T.Helper()
	l.gates++
	g := Gate{l: l, name: filepath.Join(l.Dir, "work", fmt.Sprint("gate", l.gates))}
	wait := fmt.Sprintf("touch %[1]s.begun; until [ -e %[1]s.open ]; do sleep 0.05; done", g.name)
	g.Reply = Calling(l.Agent.Harness, wait)
	l.T.Cleanup(g.Open)
	return g
}

// Begun waits until the tool is at work, and the thread has the call.
func (g Gate) Begun() {
	g.l.T.Helper()
	g.l.Until("the tool is at work", func() bool {
		_, err := os.Stat(g.name + ".begun")
		return err == nil
	})
}

// Open lets the tool end.
func (g Gate) Open() {
	if err := os.WriteFile(g.name+".open", nil, 0o600); err != nil {
		g.l.T.Error(err)
	}
}

// Slowly is a reply that takes 50 ms a word.
func Slowly(words int) model.Reply {
	return model.Reply{Text: strings.Repeat("word ", words), Pace: model.Duration(50 * time.Millisecond)}
}

// Fine are replies for whatever is still asked.
var Fine = model.Reply{Text: "Fine.", Times: -1}
