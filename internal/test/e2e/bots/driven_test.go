package bots_test

import (
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
)

// A server that dispatches launches a run for a chat on a driven thread. One that can't be launched ends on the thread,
// once for each chat, and the command that waits for it prints why.
func TestDrivenRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.serve(h.dispatching("--dispatch")...)
	id := h.arbe("", "thread", "new")
	h.sql(`insert into environments (id, house_id, name, runtime, config) values ('e1', 'h1', 'base', 'local', '{}')`,
		`insert into threads (id, stream_id, house_id, environment_id, agent_id, status, created_at)
			values ('`+id+`', '`+id+`', 'h1', 'e1', '`+piet+`', 'idle', '2020-01-01')`)
	for range 2 {
		out, err := h.command("say", "--wait", "--author", ann, id, "--", "go on").CombinedOutput()
		if err == nil || err.Error() != "exit status 75" ||
			!strings.Contains(string(out), "this host launches no runs of members in local boxes") {
			t.Fatalf("%v: %s", err, out)
		}
	}
	var fold thread.Fold
	var pending thread.Pending
	for _, e := range h.entries(id) {
		fold.Add(e)
		pending.Add(e)
	}
	chats := pending.Chats()
	if len(chats) != 2 || fold.Len() != 2 {
		t.Fatalf("%d chats are pending, and %d runs are there", len(chats), fold.Len())
	}
	for i, run := range fold.Runs() {
		if run.ID != dispatch.RunOf(id, chats[i].ID) || run.Status != thread.StatusFailed || run.Cause == nil ||
			run.Cause.ErrorClass != outcome.ClassLaunch {
			t.Errorf("the run of %s is %+v", chats[i].ID, run)
		}
	}
}

// A chat whose run would be above the limit of its house waits, which its thread has once. Its run is launched when
// another one has ended.
func TestFullDrivenWaits(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.arbe("", "house", "set", "h1", "--runs", "1")
	h.serve(h.dispatching("--dispatch")...)
	id := h.arbe("", "thread", "new")
	h.sql(`insert into environments (id, house_id, name, runtime, config) values ('e1', 'h1', 'base', 'local', '{}')`,
		`insert into threads (id, stream_id, house_id, environment_id, agent_id, status, created_at)
			values ('`+id+`', '`+id+`', 'h1', 'e1', '`+piet+`', 'idle', '2020-01-01')`,
		`insert into threads (id, stream_id, house_id, environment_id, agent_id, status, task)
			values ('task', 'task', 'h1', 'e1', '`+piet+`', 'idle', '{"prompt": "go"}')`,
		`update threads set launch_host = 'another', launch_after = '2100-01-01' where id = 'task'`)
	chat := h.arbe("", "say", "--author", ann, id, "--", "go on")
	run := dispatch.RunOf(id, chat)
	has := func(prefix string) func() bool {
		return func() bool {
			return slices.ContainsFunc(h.entries(id), func(e thread.Entry) bool {
				return strings.HasPrefix(e.ID, prefix)
			})
		}
	}
	scene.Until(h, "a run that waits", has(run+".waits"))
	if out := h.arbe("", "dispatch", "explain", id, chat); !strings.Contains(out,
		"run "+run+": waits: the house runs 1 at once") {
		t.Errorf("explained as %s", out)
	}
	if out := h.arbe("", "house", "show", "h1"); !strings.Contains(out, "runs\t1 of 1, 1 waits\n") {
		t.Errorf("the house is shown as %s", out)
	}
	h.sql(`update threads set launch_host = null where id = 'task'`)
	scene.Until(h, "a run", has(run+".orphan."))
	waits := 0
	for _, e := range h.entries(id) {
		if _, is := thread.ParseWaits(e.Payload); is {
			waits++
		}
	}
	if waits != 1 {
		t.Errorf("that it waits is on the thread %d times", waits)
	}
	if out := h.arbe("", "dispatch", "explain", id, chat); !strings.Contains(out, "run "+run+": failed") {
		t.Errorf("explained as %s", out)
	}
}
