package page

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/internal/test/hostile"
	"arbe.0sk.ar/runner/internal/test/reaction"
	"arbe.0sk.ar/runner/thread"
)

// posted is a chat that a bot posts from another thread.
func posted(id, from string) thread.Entry {
	return thread.NewEntry(id, piet, thread.Chat{
		Type: thread.TypeChat, Text: "Look at " + id, Via: &thread.Via{ThreadID: from, Reaction: "x_a", Depth: 1},
	})
}

// delegation is a house with the threads t1 and Planning, and a thread of another house. On t1 a bot has delegated a
// task, and another thread has the id of a second one.
func delegation(t *testing.T) (h *house, task, foreign string, after uint64) {
	h = newHouse(t)
	r := &reaction.Reaction{Thread: "t1", Bot: piet, Chats: []string{"c"}, At: at}
	task, foreign = thread.CallKey(r.ID(), 0, 0), thread.CallKey(r.ID(), 0, 1)
	threads := map[string]rows.Thread{
		"t1": {House: "h"}, "t2": {House: "h", Name: "Planning"}, "t3": {House: "o", Name: "Secret plans"},
		task: {House: "h", Parent: "t1"}, foreign: {House: "o", Parent: "t9"},
	}
	h.Room = func(_ context.Context, id string) (rows.Room, error) {
		one, ok := threads[id]
		if !ok {
			return rows.Room{}, rows.ErrAbsent
		}
		return rows.Room{Thread: one}, nil
	}
	h.append("t2", "first")
	after = h.post("t1", posted("c", "t2"), posted("c2", "t3"), r.Claim(0),
		r.Calling(0, "I delegate it.", "delegate_task", "task", "the haiku", "the other"),
		r.Result(0, 0, "under way", false), r.Result(0, 1, "under way", false))
	return h, task, foreign, after
}

// post appends entries, and returns the thread's end.
func (h *house) post(id string, entries ...thread.Entry) uint64 {
	h.t.Helper()
	done, err := h.Log.Append(h.t.Context(), id, entries)
	if err != nil {
		h.t.Fatal(err)
	}
	return done.Next
}

// status is a change of a run's status.
func status(id, status string) thread.Entry {
	return thread.Entry{ID: id, TS: thread.Stamp(time.Now()), Payload: []byte(
		`{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"` + status + `"}`)}
}

func mustHave(t *testing.T, what, page string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(page, w) {
			t.Errorf("%s lacks %q: %s", what, w, page)
		}
	}
}

func mustLack(t *testing.T, what, page string, bad ...string) {
	t.Helper()
	for _, w := range bad {
		if strings.Contains(page, w) {
			t.Errorf("%s has %q: %s", what, w, page)
		}
	}
}

// A chat that a bot has posted from another thread has that thread's name, for those who may open it; the name is in no
// entry. Who has a share gets no name, no link and no state of another thread, on the page and live.
func TestOrigin(t *testing.T) {
	h, task, _, after := delegation(t)
	_, page := h.as("GET", "/t/t1", "")
	mustHave(t, "the page", page, `posted from <a href="/t/t2">Planning</a>`,
		`posted from <a href="/t/t3">another thread</a>`, `<a href="/t/`+task+`">open its thread</a>`)
	mustLack(t, "the page", page, "Secret plans")
	_, page = h.as("GET", "/t/t2", "")
	mustHave(t, "a thread with a name", page, `<h1 class="title">Planning</h1>`)

	_, code, err := h.store.NewShare(t.Context(), now(), "t1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	own := h.open("t1", after)
	h.share = code
	shared := h.open("t1", after)
	h.post("t1", posted("c3", "t2"))
	if !shared.await("Look at c3") || !own.await("Planning</a>") {
		t.Error("the chat is not shown live")
	}
	shared.end()
	own.end()
	_, page = h.as("GET", "/t/t1", "")
	for what, page := range map[string]string{"a shared page": page, "a shared page, live": shared.text()} {
		mustHave(t, what, page, "posted from another thread")
		mustLack(t, what, page, "Planning", "/t/t2", "open its thread", "task: ")
	}
	h.checkEmpty()
}

// The line of a call that has delegated a task has the state of its thread as it is now, also while nothing comes on
// the parent; of no thread that is another one's child.
func TestTaskState(t *testing.T) {
	h, task, foreign, after := delegation(t)
	h.post(foreign, status("r1.running", thread.StatusRunning))
	state := func(text string) string { return fmt.Sprintf(`>task: %s</span>`, text) }
	_, page := h.as("GET", "/t/t1", "")
	mustHave(t, "the page", page, `data-child="`+task+`"`, state("waiting to start"))
	mustLack(t, "the page", page, foreign+`" data-ended`, state("working"))
	if _, _, err := h.Log.Create(t.Context(), thread.StreamName(task), log.Want{Type: "application/json"}); err != nil {
		t.Fatal(err)
	}
	_, page = h.as("GET", "/t/t1", "") // its thread is there, and has no entry
	mustHave(t, "the page", page, `data-child="`+task+`"`, state("waiting to start"))

	b := h.follow(fmt.Sprintf("/t/t1/live?after=%d&tasks=%s,%s,no/thread", after, task, foreign))
	if !b.await("waiting to start") {
		t.Fatal("no state for a browser that has just come")
	}
	for _, tt := range []struct{ status, want string }{
		{thread.StatusRunning, "working"}, {thread.StatusFailed, "failed"},
	} {
		h.post(task, status("r1."+tt.status, tt.status))
		if !b.await("task: " + tt.want) {
			t.Fatalf("the task is %s, and the page does not show it", tt.want)
		}
	}
	h.post("t1", thread.NewEntry("last", piet, thread.Chat{Type: thread.TypeChat, Text: "behind it"}))
	if !b.await("behind it") {
		t.Error("the thread is not followed any more")
	}
	b.end()
	mustLack(t, "the live page", b.text(), foreign)
	_, page = h.as("GET", "/t/t1", "")
	mustHave(t, "the page", page, state("failed"))
	h.checkEmpty()
}

// A thread that bots alone answer on has no chat that is not delivered. With its first run its chats wait for that,
// on a page that is open, too.
func TestBotsAlone(t *testing.T) {
	h, _, _, after := delegation(t)
	const mark = "not delivered yet"
	_, page := h.as("GET", "/t/t1", "")
	mustLack(t, "the page", page, mark)
	b := h.open("t1", after)
	h.post("t1", posted("c3", "t2"))
	if !b.await("Look at c3") {
		t.Fatal("no chat")
	}
	mustLack(t, "the live chat", b.text(), mark)
	h.post("t1", status("r1.running", thread.StatusRunning), thread.Entry{
		ID: "r1.started", TS: thread.Stamp(at),
		Payload: []byte(`{"type":"signal.dispatch.session_started","runId":"r1","harness":"pi","cwd":"/w"}`),
	})
	if !b.await(mark) {
		t.Error("the run's chats are not shown to wait")
	}
	b.end()
	_, page = h.as("GET", "/t/t1", "")
	mustHave(t, "with a run the page", page, mark, "3 "+mark)
	h.checkEmpty()
}

// An exported file has the names that its maker gives it, and the states of that time, without links.
func TestExportBeside(t *testing.T) {
	r := &reaction.Reaction{Thread: "t1", Bot: piet, At: at}
	task := thread.CallKey(r.ID(), 0, 0)
	entries := []thread.Entry{
		posted("c", "t2"), r.Calling(0, "I delegate it.", "delegate_task", "task", "the haiku"),
		r.Result(0, 0, "under way", false),
	}
	for _, known := range []bool{false, true} {
		var file strings.Builder
		x, err := NewExport(&file, thread.Summary{ID: "t1", Status: thread.StatusIdle}, nil, at)
		if err != nil {
			t.Fatal(err)
		}
		if known {
			x.Name = func(string) string { return "Piet" }
			x.Other = func(id string) (thread.Summary, bool) {
				return map[string]thread.Summary{
					"t2": {ID: id, Title: "Planning"}, task: {ID: id, Status: thread.StatusCompleted},
				}[id], true
			}
		}
		for _, e := range entries {
			if err := x.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		mustLack(t, "the file", file.String(), "not delivered", `href="/t/`)
		if known {
			mustHave(t, "the file", file.String(), "posted from Planning", "task: done", "<h2>Piet ")
		} else {
			mustHave(t, "a file without names", file.String(), "posted from another thread", "<h2>bot 11111111 ")
			mustLack(t, "a file without names", file.String(), "task: ")
		}
	}
}

// The names of other threads are text, and an unknown class of a failure is not shown.
func TestHostileBeside(t *testing.T) {
	for n, text := range hostile.Texts {
		r := &reaction.Reaction{Thread: "t1", Bot: piet, At: at}
		task := thread.CallKey(r.ID(), 0, 0)
		v := hostileSummary("stderr: " + text + " end")
		v.ID = task
		var b view.Builder
		var list view.List
		for _, e := range []thread.Entry{
			posted("c", "t2"), r.Calling(0, "", "delegate_task", "task", text), r.Result(0, 0, text, false),
		} {
			for _, c := range b.Add(e) {
				list.Change(c)
			}
		}
		of := beside{others: others{"t2": newRow(v, at), task: taskRow(v)}}
		shown := checkHTML(t, fmt.Sprintf("text %d, %.60q", n, text),
			execute(t, "piece", piece{Groups: grouped(list.Items, "t1", of), Thread: "t1"}))
		if got := strings.Count(plain(shown), plain("stderr: "+view.Visible(text)+" end")); got != 1 {
			t.Errorf("text %d, %.60q: %d times on its page", n, text, got)
		}
	}
}
