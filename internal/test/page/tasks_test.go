package page_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/internal/test/port"
	"arbe.0sk.ar/runner/internal/test/postgres"
	"arbe.0sk.ar/runner/internal/test/reaction"
	"arbe.0sk.ar/runner/thread"
)

// piet is the bot of a house that newHouse makes.
const piet = "7d3c1a52-6b5e-4c6e-9c1a-0f1e2d3c4b5a"

// house is a host with the rows of a house, whose bot is piet.
type house struct {
	*host
	database string
}

func newHouse(t *testing.T) *house {
	t.Helper()
	_, url := postgres.Own(t)
	(&host{t: t, data: t.TempDir()}).run("", "db", "migrate", "--database", url)
	h := &house{newHost(t, "--database", url, "--reconcile=false"), url}
	h.sql("insert into houses (id, name) values ('h1', 'lab')")
	h.sql("insert into agents (id, kind, runtime, name) values ($1, 'bot', 'pi', 'piet')", piet)
	h.sql("insert into members (house_id, agent_id, role) values ('h1', $1, 'member')", piet)
	return h
}

// sql changes rows.
func (h *house) sql(statement string, args ...any) {
	h.t.Helper()
	c, err := pgx.Connect(h.t.Context(), h.database)
	if err != nil {
		h.t.Fatal(err)
	}
	_, err = c.Exec(h.t.Context(), statement, args...)
	if err := errors.Join(err, c.Close(context.WithoutCancel(h.t.Context()))); err != nil {
		h.t.Fatal(err)
	}
}

// thread makes the row of a thread; name and parent are "" for none.
func (h *house) thread(id, name, parent string) {
	h.t.Helper()
	h.sql(`insert into threads (id, stream_id, house_id, name, parent_thread_id)
		values ($1, $1, 'h1', nullif($2, ''), nullif($3, ''))`, id, name, parent)
}

// delegate lets piet delegate tasks on a thread, and returns the ids of their threads.
func (h *house) delegate(id string, tasks ...string) (children []string) {
	h.t.Helper()
	r := &reaction.Reaction{Thread: id, Bot: piet, Chats: []string{"ask"}, At: time.Now()}
	h.hosts(id, r.Claim(0), r.Calling(0, "I delegate it.", "delegate_task", "task", tasks...))
	for i := range tasks {
		child := thread.CallKey(r.ID(), 0, i)
		h.thread(child, "", id)
		h.hosts(id, r.Result(0, i, "The task is under way.", false))
		children = append(children, child)
	}
	h.hosts(id, r.Reply(1, "They are under way.")...)
	return children
}

// state is an expression: the lines of these tasks stand in open folds, with these states. A piece that is scrolled
// away has no innerText.
func state(children []string, states ...string) string {
	var all []string
	for i, s := range states {
		of := fmt.Sprintf("document.querySelector('[data-child=%q]')", children[i])
		all = append(all, fmt.Sprintf("%s?.checkVisibility() && %[1]s.textContent === 'task: %s'", of, s))
	}
	return strings.Join(all, " && ")
}

const unfold = "document.querySelectorAll('details.subagent').forEach(d => d.open = true)"

// The line of a call that has delegated a task has the state of the task's thread, without a reload, also when the page
// was without its server meanwhile.
func TestFullPageTask(t *testing.T) {
	h := newHouse(t)
	h.thread("t1", "", "")
	h.post("t1", chat("ask", "@piet write three haikus"))
	b := h.login(t, "t1")
	b.Wait(shows("#i-ask", "three haikus"))
	b.Run("window.loaded = 'once'")
	children := h.delegate("t1", "a haiku", "another", "a third")
	const waiting = "waiting to start"
	b.Wait("document.querySelectorAll('[data-child]').length === 3")
	b.Run(unfold)
	b.Wait(state(children, waiting, waiting, waiting))

	beat := func(n int, ms int64) {
		h.post(children[0], signal("r1", fmt.Sprint("beat.", n), thread.TypeHeartbeat, fmt.Sprintf(`,"nextMs":%d`, ms)))
	}
	h.post(children[0], begin("r1", "a haiku", "")...)
	b.Wait(state(children, "working", waiting, waiting))
	beat(1, 200) // the last one for now, and nothing comes that would report it
	b.Wait(state(children, "dead", waiting, waiting))
	beat(2, 3_600_000)
	b.Wait(state(children, "working", waiting, waiting))
	h.post(children[0], end("r1", "completed"))
	b.Wait(state(children, "done", waiting, waiting))

	// The second task begins while the server is at another address.
	h.stop()
	b.Wait(shows("#status", "The server is away"))
	addr := h.addr
	h.addr = port.Reserve(t)
	h.start()
	h.post(children[1], begin("r2", "another", "")...)
	h.stop()
	h.addr = addr
	h.start()
	b.Wait(state(children, "done", "working", waiting))
	b.Wait("document.getElementById('status').innerText === ''")
	h.post(children[1], end("r2", "failed"))
	b.Wait(state(children, "done", "failed", waiting))
	h.post(children[2], begin("r3", "a third", "")...)
	b.Wait(state(children, "done", "failed", "working"))
	b.Wait("window.loaded === 'once'")

	b.Go(h.url() + "/t/t1")
	b.Wait("document.querySelector('[data-child]')")
	b.Run(unfold)
	b.Wait(state(children, "done", "failed", "working"))
}

// A task in a piece that was loaded later is followed, too.
func TestFullPageTaskOlder(t *testing.T) {
	h := newHouse(t)
	h.thread("long", "", "")
	h.post("long", chat("ask", "@piet write a haiku"))
	children := h.delegate("long", "a haiku")
	h.chats("long", 600)
	b := h.login(t, "long")
	b.Wait("document.getElementById('i-c599')")
	b.Wait(atEnd)
	if browser.Eval[bool](b, "!!document.querySelector('[data-child]')") {
		t.Fatal("the task is on the page at first")
	}
	for !browser.Eval[bool](b, "!!document.querySelector('[data-child]')") {
		first := browser.Eval[string](b, "document.querySelector('#items .item').id")
		b.Run("document.querySelector('#items .item').scrollIntoView()")
		b.Wait(fmt.Sprintf("document.querySelector('#items .item').id !== %q", first))
	}
	b.Run(unfold)
	b.Wait(state(children, "waiting to start"))
	b.Run("scrollTo(0, document.documentElement.scrollHeight)")
	b.Wait(atEnd)
	h.post(children[0], begin("r1", "a haiku", "")...)
	b.Wait(state(children, "working"))
	h.post(children[0], end("r1", "cancelled"))
	b.Wait(state(children, "cancelled"))
}

// The name of the thread from which a bot has posted is a link to it. Who has a share sees neither that name nor the
// state of a task, of entries that were there and of those that come.
func TestFullPageTaskShared(t *testing.T) {
	h := newHouse(t)
	h.thread("t1", "", "")
	h.thread("origin", "Planning", "")
	h.post("origin", chat("first", "Let us plan."))
	from := func(id string) thread.Entry {
		return thread.NewEntry(id, piet, thread.Chat{
			Type: thread.TypeChat, Text: "Look at " + id,
			Via: &thread.Via{ThreadID: "origin", Reaction: "x_a", Depth: 1},
		})
	}
	h.post("t1", chat("ask", "@piet write two haikus"))
	h.hosts("t1", from("early"))
	b := h.login(t, "t1")
	shared := browser.Open(t, h.url())
	shared.Go(h.run("", "share", "t1"))
	for _, tab := range []*browser.Tab{b, shared} {
		tab.Wait(shows("#i-early", "Look at early"))
	}
	children := h.delegate("t1", "a haiku", "another")
	h.post(children[0], begin("r1", "a haiku", "")...)
	b.Wait("document.querySelectorAll('[data-child]').length === 2")
	b.Run(unfold)
	b.Wait(state(children, "working", "waiting to start"))
	h.hosts("t1", from("late"))

	for _, how := range []string{"live", "loaded"} {
		shared.Wait("document.getElementById('i-late')")
		shared.Run(unfold)
		shared.Wait(shows("details.subagent .tool > summary", "delegate_task"))
		html := browser.Eval[string](shared, "document.documentElement.outerHTML")
		for _, secret := range slices.Concat(children, []string{"Planning", "/t/origin", "data-child", "working"}) {
			if strings.Contains(html, secret) {
				t.Errorf("%s: a shared page has %q: %s", how, secret, html)
			}
		}
		for _, id := range []string{"early", "late"} {
			shared.Wait(shows("#i-"+id+" .origin", "posted from another thread"))
			b.Wait(shows("#i-"+id+" .origin", "posted from Planning"))
		}
		b.Click("#i-late .origin a")
		b.Wait("location.pathname === '/t/origin'")
		b.Wait(shows("h1", "Planning") + " && " + shows("#i-first", "Let us plan."))
		b.Go(h.url() + "/t/t1")
		b.Wait("document.getElementById('i-late')")
		shared.Go(h.url() + "/t/t1")
	}
}
