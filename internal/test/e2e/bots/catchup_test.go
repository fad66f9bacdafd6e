package bots_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// client returns a client of a thread.
func (h *house) client(id string) *client.Client {
	h.Helper()
	keys, err := daemon.Data(h.data).Secrets()
	if err != nil {
		h.Fatal(err)
	}
	url, err := daemon.Data(h.data).Address()
	if err != nil {
		h.Fatal(err)
	}
	return provision.Client(keys[0], &client.Client{Base: thread.BaseURL(url), HTTP: shared}, id)
}

var shared = client.NewHTTP()

// threads makes threads, with their rows.
func (h *house) threads(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("t%05d", i))
	}
	h.sql(fmt.Sprintf(`insert into threads (id, house_id, stream_id)
		select id, 'h1', id from (select 't' || lpad(i::text, 5, '0') as id from generate_series(0, %d) i) as t`, n-1))
	return ids
}

// posts posts chats of ann's on each thread: the id of the i-th one ends with i.
func (h *house) posts(ids []string, name, text string, n int) {
	h.Helper()
	var all errgroup.Group
	all.SetLimit(16)
	for _, id := range ids {
		cl := h.client(id)
		all.Go(func() error {
			var chats []thread.Entry
			for i := range n {
				chats = append(chats, thread.Entry{
					ID: name + strconv.Itoa(i), AuthorID: ann, TS: "2026-06-01T12:00:00.000Z",
					Payload: thread.Marshal(thread.Chat{Type: thread.TypeChat, Text: text}),
				})
			}
			_, err := cl.Append(context.WithoutCancel(h.Context()), chats)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		h.Fatal(err)
	}
}

// answers returns how often each of a thread's chats was answered, and how many of its reactions are open.
func (h *house) answers(id string) (of map[string]int, open int) {
	h.Helper()
	of = map[string]int{}
	err := h.client(id).ReadAll(h.Context(), time.Minute, func(e thread.Entry) error {
		switch p := scene.Payload[thread.ReactionFinished](h.TB.(*testing.T), e); {
		case p.Type == thread.TypeReactionClaimed:
			open++
		case p.Type == thread.TypeReactionFinished && p.Outcome == thread.ReactionAnswered:
			open--
			for _, chat := range p.Chats {
				of[chat]++
			}
		}
		return nil
	})
	if err != nil {
		h.Fatal(err)
	}
	return of, open
}

func TestCatchUp(t *testing.T)     { catchUp(t, 40) }
func TestFullCatchUp(t *testing.T) { catchUp(t, 1000) }

// Nobody dispatches for a while. Each mention of that time is then answered once, none of before dispatch_since is, and
// a cache that is lost has nothing answered again.
func catchUp(t *testing.T, threads int) {
	t.Parallel()
	h := newHouse(t, model.Reply{Text: "hello", Times: -1})
	h.serve()
	ids := h.threads(threads)
	h.posts(ids, "old", "@piet hello", 2)
	h.sql(`update houses set dispatch_since = now()`)
	h.posts(ids, "m", "@piet hello", 5)
	check := func() {
		t.Helper()
		for _, id := range ids {
			of, open := h.answers(id)
			for i := range 5 {
				if of["m"+strconv.Itoa(i)] != 1 {
					t.Fatalf("%s: chats were answered %v times", id, of)
				}
			}
			if len(of) != 5 || open != 0 {
				t.Fatalf("%s: chats were answered %v times, and %d reactions are open", id, of, open)
			}
		}
	}
	h.arbe("", h.dispatching("dispatch", "--once")...)
	check()
	asked := len(h.model.Requests())
	if asked > 5*threads {
		t.Errorf("%d requests for %d mentions", asked, 5*threads)
	}
	h.sql(`truncate dispatch_cache`)
	stop := h.dispatch()
	scene.Until(t, "a cache of all threads", func() bool { return h.count("dispatch_cache") == threads })
	stop()
	check()
	if n := len(h.model.Requests()); n != asked {
		t.Errorf("%d more requests", n-asked)
	}
}

// Threads on which nothing is open cost no request and little memory.
func TestFullIdle(t *testing.T) {
	t.Parallel()
	const threads = 10_000
	h := newHouse(t)
	h.serve()
	h.posts([]string{h.thread()}, "old", "hello", 2) // without one nothing shows that a host is up
	memory := func() int {
		stop := h.dispatch()
		defer stop()
		scene.Until(t, "a cache of all threads", func() bool { return h.count("dispatch_cache") == h.count("threads") })
		return h.memory()
	}
	before := memory()
	h.posts(h.threads(threads), "old", "hello", 2)
	h.sql(`update houses set dispatch_since = now()`)
	after := memory()
	t.Logf("%d MB before, %d MB with %d threads", before, after, threads)
	if after-before > 50 || len(h.model.Requests()) > 0 {
		t.Errorf("%d MB more, and %d requests", after-before, len(h.model.Requests()))
	}
}

// memory returns the memory of the newest program, in MB.
func (h *house) memory() int {
	h.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.pid))
	if err != nil {
		h.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	var kb int
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		h.Fatal(err)
	}
	return kb >> 10
}
