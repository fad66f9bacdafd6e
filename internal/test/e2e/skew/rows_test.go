package skew_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/thread"
)

// newRowsHost makes a host without a server, whose house's rows are by the schema of a version.
func newRowsHost(p *pair, v version) (*host, *house) {
	p.t.Helper()
	s := newSite(p.t)
	h := &host{site: s, plan: filepath.Join(s.dir, "plan")}
	h.agents()
	write(p.t, h.plan, "prompt\nsay done")
	lab := newHouse(p.t, s, v)
	h.boxOfPi(lab)
	return h, lab
}

// boxOfPi makes the fake agent pi in the boxes of the house. The file of its plan may have a thread's id behind it.
func (h *host) boxOfPi(lab *house) {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	config := thread.Marshal(map[string]any{"files": []map[string]string{{
		"path": "~/.npm-global/bin/pi", "mode": "0755",
		"content": "#!/bin/sh\nplan=" + h.plan + "\n[ ! -e $plan.$ARBE_THREAD_ID ] || plan=$plan.$ARBE_THREAD_ID\n" +
			fakeagent.PlanVar + "=$plan exec " + self + ` "$@"` + "\n",
	}}})
	lab.sql("update environments set config = '" + string(config) + "'")
}

// task has ann delegate a task over HTTP, and returns its thread.
func (h *host) task(lab *house, parent string) string {
	h.t.Helper()
	status, answer, err := lab.asks(h.addr, http.MethodPost, "/api/threads/"+parent+"/tasks", `{"task":"do it"}`)
	var made struct{ ThreadID string }
	if err != nil || status/100 != 2 || json.Unmarshal([]byte(answer), &made) != nil || made.ThreadID == "" {
		h.t.Fatalf("a task: %d %s, %v", status, answer, err)
	}
	return made.ThreadID
}

// done waits until a task has completed and its result is on the parent, once.
func (h *host) done(v version, parent, task string) {
	h.t.Helper()
	h.ends(task, thread.StatusCompleted)
	until(h.t, "the result of a task", func() bool {
		h.arbe(v, "reconcile", task)
		chats, signals := results(h.entries(parent), task)
		if chats > 1 || signals > 1 {
			h.t.Fatalf("the parent has %d and %d results", chats, signals)
		}
		return chats == 1 && signals == 1
	})
	var fold thread.Fold
	for _, e := range h.entries(task) {
		fold.Add(e)
	}
	if fold.Len() != 1 {
		h.t.Errorf("task %s has %d runs", task, fold.Len())
	}
}

// taking are the flags of a server whose members' tasks get local boxes, and are launched.
var taking = []string{"--provision", "--local-boxes"}

// The database has the schema of the first version, and the second one uses it.
func schemaOfFirst(p *pair) {
	h, lab := newRowsHost(p, p.first)
	parent := lab.thread("parent")
	if p.then.old {
		schemaAhead(p, h, lab, parent)
		return
	}
	h.serve(p.then)
	h.arbe(p.then, "thread", "post", parent, "chat 0")
	if steps := h.arbe(p.then, "db", "status"); strings.Contains(steps, "\tpending") { // both may have the same schema
		lab.gets(h.addr, http.StatusServiceUnavailable, `"code":"schema","message":"the database has to be migrated`)
	}
	h.arbe(p.then, "db", "migrate")
	until(p.t, "members are served", func() bool {
		status, _, err := lab.asks(h.addr, http.MethodGet, "/api/threads", "")
		return err == nil && status == http.StatusOK
	})
	lab.gets(h.addr, http.StatusOK, parent)
	h.posted(parent, 1)
}

// keySchema is the difference of programs that know no step by which they can tell.
const keySchema = "schema"

// schemaAhead has the older version use the schema of a newer one.
func schemaAhead(p *pair, h *host, lab *house, parent string) {
	if p.known(keySchema) {
		for _, args := range [][]string{{"serve", "--addr", h.addr}, {"provision", "--once"}, {"house", "list"}} {
			out, status := h.try(p.then, args...)
			if status != 78 || !strings.Contains(out, "a newer arbe has migrated the database") {
				p.t.Errorf("arbe %v: status %d\n%s", args, status, out)
			}
		}
		return
	}
	h.serve(p.then, taking...)
	lab.gets(h.addr, http.StatusOK, parent)
	h.done(p.then, parent, h.task(lab, parent))
}

// A server of the first version launches the tasks of members. Meanwhile the second one migrates the database, launches
// tasks beside it, and then takes its place. No run ends by it, and each task is done once.
func migratedMeanwhile(p *pair) {
	h, lab := newRowsHost(p, p.first)
	parent := lab.thread("parent")
	if p.then.old && p.known(keySchema) {
		h.serve(p.first, taking...)
		if out, status := h.try(p.then, "db", "migrate"); status != 78 {
			p.t.Errorf("db migrate: status %d\n%s", status, out)
		}
		h.done(p.first, parent, h.task(lab, parent))
		return
	}
	gate := filepath.Join(h.dir, "go")
	write(p.t, h.plan, "prompt\nwait "+gate+"\nsay done")
	h.serve(p.first, taking...)
	tasks := []string{h.task(lab, parent)}
	until(p.t, "a task's agent", func() bool { return h.prompted(tasks[0]) })
	h.arbe(p.then, "db", "migrate")
	lab.gets(h.addr, http.StatusOK, parent)
	tasks = append(tasks, h.task(lab, parent))
	until(p.t, "a task's agent", func() bool { return h.prompted(tasks[1]) })
	beside := lasting(p.t, h.command(p.then, "provision", "--local-boxes"))
	for range 4 {
		tasks = append(tasks, h.task(lab, parent))
	}
	h.replace(p.then, taking...)
	lab.gets(h.addr, http.StatusOK, parent)
	for range 2 {
		tasks = append(tasks, h.task(lab, parent))
	}
	write(p.t, gate, "")
	for _, task := range tasks {
		h.done(p.then, parent, task)
	}
	beside.end()
	if n := lab.text("select count(*)::text from threads where task is not null"); n != fmt.Sprint(len(tasks)) {
		p.t.Errorf("%s tasks, want %d", n, len(tasks))
	}
}

// prompted reports whether the agent of a thread's run has its prompt.
func (h *host) prompted(id string) bool {
	for _, e := range h.entries(id) {
		if line := thread.ParseLine(e.Payload); line.Names() {
			return true
		}
	}
	return false
}
