package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/dispatch/tools"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// The people and the threads of a world.
const (
	ann  = "0a000000-0000-4000-8000-000000000001" // of the lab
	piet = "0d000000-0000-4000-8000-000000000002" // a bot of both houses
	alma = "0d000000-0000-4000-8000-000000000003" // a bot of the lab
	key  = "x_abcdefghijklmnopqrstuvwx-0-0"
)

// world is two houses, the lab and the bank, with their threads in memory. What is seen as a bot is that of its houses,
// as row level security has it.
type world struct {
	t       testing.TB
	threads []rows.Thread
	bots    []rows.NewBot
	logs    map[string][]thread.Entry
	closed  map[string]bool // logs that take no entry
	tools   tools.Host
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, logs: map[string][]thread.Entry{}, closed: map[string]bool{}}
	w.threads = []rows.Thread{
		{ID: "planning", House: "lab", Name: "Planning", Status: rows.ThreadOpen},
		{ID: "logs", House: "lab", Name: "Logs", Status: rows.ThreadOpen},
		{ID: "shut", House: "lab", Name: "Shut", Status: rows.ThreadClosed},
		{ID: "safe", House: "bank", Name: "Safe", Status: rows.ThreadOpen},
		{ID: "far", House: "elsewhere", Name: "Far", Status: rows.ThreadOpen},
	}
	w.tools = tools.Host{
		Rows:    func(_ context.Context, bot string) (tools.Rows, error) { return &seen{w, bot}, nil },
		Threads: func(id string) dispatch.Thread { return &logged{w, id} },
	}
	return w
}

// seen are the rows that a bot sees.
type seen struct {
	*world
	bot string
}

func (s *seen) sees(house string) bool {
	return house == "lab" && (s.bot == piet || s.bot == alma) || house == "bank" && s.bot == piet
}

func (s *seen) Threads(_ context.Context, q rows.Query) (all []rows.Thread, err error) {
	for _, t := range s.threads {
		if s.sees(t.House) && (q.House == "" || q.House == t.House) && len(all) < q.Limit &&
			strings.Contains(strings.ToLower(t.Name), strings.ToLower(q.Name)) {
			all = append(all, t)
		}
	}
	return all, nil
}

func (s *seen) Thread(_ context.Context, id string) (rows.Thread, error) {
	i := slices.IndexFunc(s.threads, func(t rows.Thread) bool { return t.ID == id && s.sees(t.House) })
	if i < 0 {
		return rows.Thread{}, rows.Refuse(rows.ErrAbsent, "thread")
	}
	return s.threads[i], nil
}

func (s *seen) CreateThread(_ context.Context, n rows.NewThread) (t rows.Thread, err error) {
	switch {
	case slices.ContainsFunc(s.threads, func(t rows.Thread) bool { return t.ID == n.ID }):
		return t, rows.Refuse(rows.ErrTaken, "the thread's id")
	case !s.sees(n.House):
		return t, rows.Refuse(rows.ErrForbidden, "the house")
	}
	t = rows.Thread{ID: n.ID, House: n.House, Name: n.Name, Config: n.Config, Status: rows.ThreadOpen}
	s.threads = append(s.threads, t)
	return t, nil
}

func (s *seen) MakeBot(_ context.Context, n rows.NewBot) (a rows.Agent, err error) {
	if !slices.ContainsFunc(s.bots, func(b rows.NewBot) bool { return b.ID == n.ID }) {
		s.bots = append(s.bots, n)
	}
	return rows.Agent{ID: n.ID, Name: n.Name}, nil
}

// logged is the log of a thread.
type logged struct {
	*world
	id string
}

func (l *logged) Read(_ context.Context, from string, f func(thread.Entry)) (string, time.Time, error) {
	if from != "0" {
		l.t.Errorf("read from %s", from)
	}
	for _, e := range l.logs[l.id] {
		f(e)
	}
	return fmt.Sprint(len(l.logs[l.id])), time.Now(), nil
}

func (l *logged) Append(_ context.Context, entries ...thread.Entry) error {
	for _, e := range entries {
		i := slices.IndexFunc(l.logs[l.id], func(x thread.Entry) bool { return x.ID == e.ID })
		switch {
		case l.closed[l.id]:
			return dispatch.ErrGone
		case i < 0:
			l.logs[l.id] = append(l.logs[l.id], e)
		case string(l.logs[l.id][i].Payload) != string(e.Payload):
			return dispatch.ErrTaken
		}
	}
	return nil
}

// call is a call of piet's on the thread planning, for ann.
func (w *world) call(arguments any) dispatch.ToolCall {
	return dispatch.ToolCall{
		Key: key, Thread: "planning", Reaction: "x_abcdefghijklmnopqrstuvwx", Bot: piet,
		Room: dispatch.Room{
			Thread: "Planning", House: "Lab", HouseID: "lab", Humans: []dispatch.Member{{ID: ann, Name: "Ann"}},
			Bots: []dispatch.Bot{
				{
					ID: piet, Name: "Piet", Provider: "p", Model: "m",
					Tools: map[string]bool{"post_to_thread": true, "create_agent": true, "hello_world": false},
				},
				{ID: alma, Name: "Alma"},
			},
		},
		Root:      &thread.Root{AuthorID: ann, ThreadID: "planning", EntryID: "m1"},
		Arguments: thread.Marshal(arguments),
	}
}

// run runs a tool.
func (w *world) run(name string, c dispatch.ToolCall) dispatch.ToolResult {
	w.t.Helper()
	for _, x := range w.tools.All() {
		if x.Name != name {
			continue
		}
		r, err := x.Run(w.t.Context(), c)
		if err != nil {
			w.t.Errorf("%s: %v", name, err)
		}
		return r
	}
	w.t.Fatalf("no tool %s", name)
	return dispatch.ToolResult{}
}

// want fails the test unless a call has a result with a text in it.
func (w *world) want(name string, c dispatch.ToolCall, isError bool, text string) {
	w.t.Helper()
	if r := w.run(name, c); r.IsError != isError || !strings.Contains(r.Text, text) {
		w.t.Errorf("%s %s: got %+v, want %q, an error: %t", name, c.Arguments, r, text, isError)
	}
}

type args map[string]any

// say adds a chat to a thread.
func (w *world) say(id, key, author, text string) {
	e := thread.NewEntry(key, author, thread.Chat{Type: thread.TypeChat, Text: text})
	e.At = thread.Stamp(time.Unix(0, 0))
	w.logs[id] = append(w.logs[id], e)
}

// payload returns the payload of an entry as a chat.
func payload(t testing.TB, e thread.Entry) (c thread.Chat) {
	t.Helper()
	if err := json.Unmarshal(e.Payload, &c); err != nil {
		t.Error(err)
	}
	return c
}
