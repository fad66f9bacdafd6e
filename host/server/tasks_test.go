package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/member"
	house "arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// taskRows are the rows of a test's tasks, in memory.
type taskRows struct {
	mu    sync.Mutex
	made  []house.Task
	error error
}

func (r *taskRows) delegate(_ context.Context, t house.Task) (made house.Task, fresh bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.error != nil {
		return made, false, r.error
	}
	if t.Thread == "" {
		t.Thread = "child"
	}
	made = t
	made.Agent = "bot"
	if slices.Contains(r.made, t) {
		return made, false, nil
	}
	r.made = append(r.made, t)
	return made, true, nil
}

// fail sets the error of each call from now on.
func (r *taskRows) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.error = err
}

// newTasks starts a server with houses that takes tasks. Thread t1 is of h1.
func newTasks(t *testing.T) (*testServer, *taskRows, *rows) {
	houses, tasks := newRows(), &taskRows{}
	s := &testServer{t: t, dir: t.TempDir(), tasks: tasks.delegate, doors: &member.Doors{
		Logins: member.Logins{Secrets: [][]byte{secret}}, Rows: houses,
	}}
	s.open()
	t.Cleanup(s.close)
	return s, tasks, houses
}

// A member's task is a row, and then an entry on the thread that delegates it.
func TestMemberTask(t *testing.T) {
	t.Parallel()
	s, tasks, _ := newTasks(t)
	body := `{"task":"do it","agent":"bot","harness":"pi","model":"m","environment":"e","repo":"o/r","branch":"b","live":true}`
	a := s.do("POST", "/api/threads/t1/tasks", login(t, ann, time.Hour), body)
	if a.status != http.StatusCreated || a.body != `{"threadId":"child"}`+"\n" {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	want := house.Task{
		Author: ann, Parent: "t1", Thread: "child", Prompt: "do it", Agent: "bot", Harness: "pi", Model: "m",
		Environment: "e", Repo: "o/r", Branch: "b", Live: true,
	}
	if len(tasks.made) != 1 || tasks.made[0] != want {
		t.Errorf("got %+v", tasks.made)
	}
	a = s.do("GET", "/api/stream/arbe-thread-t1/entries/child.spawn", writer(t, "t1"), "")
	var e thread.Entry
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || e.AuthorID != ann ||
		string(e.Payload) != `{"type":"signal.thread.agent_spawn","childThreadId":"child","agentId":"bot"}` {
		t.Errorf("got %d %s, %v", a.status, a.body, err)
	}
}

// A request with a key can be repeated: one task, one announcement. Of other threads and members it is another task.
func TestMemberTaskKey(t *testing.T) {
	t.Parallel()
	s, tasks, _ := newTasks(t)
	post := func(path, agent string) answer {
		return s.do("POST", path, login(t, agent, time.Hour), `{"task":"do it"}`, "Idempotency-Key", "k1")
	}
	first, again := post("/api/threads/t1/tasks", ann), post("/api/threads/t1/tasks", ann)
	if first.status != 201 || again.status != 200 || first.body != again.body || len(tasks.made) != 1 {
		t.Errorf("got %d %s, then %d %s", first.status, first.body, again.status, again.body)
	}
	for _, other := range []answer{post("/api/threads/t3/tasks", ann), post("/api/threads/t2/tasks", bob)} {
		if other.status != 201 || other.body == first.body {
			t.Errorf("got %d %s", other.status, other.body)
		}
	}
	a := s.do("GET", path1+"?offset=0", writer(t, "t1"), "")
	if n := strings.Count(a.body, thread.TypeAgentSpawn); n != 1 {
		t.Errorf("%d announcements: %s", n, a.body)
	}
	if a := s.do("POST", "/api/threads/t1/tasks", login(t, ann, time.Hour), `{"task":"x"}`,
		"Idempotency-Key", "a b"); a.status != 400 {
		t.Errorf("a bad key: %d %s", a.status, a.body)
	}
}

// What a server does not take as a task makes no row and no entry.
func TestMemberTaskRefused(t *testing.T) {
	t.Parallel()
	s, tasks, houses := newTasks(t)
	ask := func(body string) answer {
		return s.do("POST", "/api/threads/t1/tasks", login(t, ann, time.Hour), body)
	}
	for _, body := range []string{
		`{}`, `{"task":" "}`, `{"task":1}`, `[]`, `no`, `{"task":"x","trusted":true}`, `{"task":"x","Member":"y"}`,
		`{"task":"x"} {}`, `{"task":"x","sandbox":"s","environment":"e"}`, `{"task":"x","branch":"b"}`,
		`{"task":"x","sandbox":"s","repo":"r"}`, `{"task":"` + strings.Repeat("x", 256<<10+1) + `"}`,
	} {
		if a := ask(body); a.status != 400 {
			t.Errorf("%.60s: %d %s", body, a.status, a.body)
		}
	}
	for _, row := range []struct {
		err    error
		status int
		code   string
		text   string
	}{
		{house.Refuse(house.ErrLocal, "environment e"), 403, "local_boxes", "environment e: local boxes are not"},
		{house.Refuse(house.ErrTaken, "the id"), 409, "exists", "the id: taken"},
		{house.Refuse(house.ErrClosed, "thread t1"), 409, "closed", "open it again"},
		{house.Refuse(house.ErrAbsent, "thread t1"), 400, "task", "thread t1: no such row"},
		{house.Refuse(house.ErrForbidden, "threads"), 400, "task", "threads: not allowed"},
		{house.Refuse(house.ErrArchived, "the environment"), 400, "task", "the environment: archived"},
		{fmt.Errorf("read thread t1: %w", house.ErrAway), 503, "houses", "the houses can't be read now"},
		{fmt.Errorf("read thread t1: %w", house.ErrOtherLog), 503, "other_log", "of another log than its own"},
		{
			fmt.Errorf("open: %w", &house.SchemaError{Kind: house.ErrOlder, Steps: "it lacks a step"}), 503, "schema",
			"the database has to be migrated: run arbe db migrate (it lacks a step)",
		},
		{errors.New("the database answers: no such table"), 503, "houses", "the houses can't be read now"},
	} {
		tasks.fail(row.err)
		a := ask(`{"task":"x"}`)
		if a.status != row.status || !strings.Contains(a.body, `"`+row.code+`"`) || !strings.Contains(a.body, row.text) {
			t.Errorf("%v: got %d %s", row.err, a.status, a.body)
		}
	}
	houses.change(func() { houses.houses[ann] = nil })
	if a := ask(`{"task":"x"}`); a.status != 404 {
		t.Errorf("a member that has left: %d %s", a.status, a.body)
	}
	if a := s.do("GET", path1+"?offset=0", writer(t, "t1"), ""); len(tasks.made) > 0 || a.status != 404 {
		t.Errorf("rows %+v, entries %d %s", tasks.made, a.status, a.body)
	}
}
