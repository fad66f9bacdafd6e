package server_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// listClient is a client of the server's list.
func listClient(t *testing.T, s *testServer) client.List {
	return client.NewList(&client.Client{
		Base: thread.BaseURL(s.srv.URL), HTTP: s.srv.Client(),
		Token: client.StaticToken(mint(t, token.Grant{
			Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads},
		})),
	})
}

// The client of the list gets each thread once, in pages, as the server filters them.
func TestListClient(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const many = client.ListLimit + 50
	var want []string
	post := func(id, entries string) {
		t.Helper()
		if a := s.do("POST", "/api/stream/arbe-thread-"+id, writer(t, id), entries); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
		want = append([]string{id}, want...)
	}
	running := signal("r1", "running", thread.TypeStatus, `,"status":"running"`)
	for i := range many {
		entries := running
		if i%10 == 0 {
			entries = "[" + running + "," + signal("r1", "end.0", thread.TypeStatus, `,"status":"failed"`) + "]"
		}
		post(fmt.Sprintf("t%03d", i), entries)
	}
	l := listClient(t, s)
	read := func(f client.Filter) (ids []string, pages int) {
		t.Helper()
		for page, err := range l.Pages(t.Context(), f) {
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(page.Now); d < -time.Minute || d > time.Minute {
				t.Errorf("the server's clock is %v", page.Now)
			}
			for _, v := range page.Threads {
				ids = append(ids, v.ID)
			}
			pages++
		}
		return ids, pages
	}
	ids, pages := read(client.Filter{})
	for began := time.Now(); len(ids) < many && time.Since(began) < patience; { // being folded
		ids, pages = read(client.Filter{})
	}
	slices.Sort(ids) // those of one millisecond have an order of their own
	slices.Sort(want)
	if d := cmp.Diff(want, ids); d != "" || pages != 2 {
		t.Errorf("%d pages\n%s", pages, d)
	}
	if ids, _ := read(client.Filter{Statuses: []string{thread.StatusFailed}}); len(ids) != many/10 {
		t.Errorf("%d threads have failed, want %d", len(ids), many/10)
	}
	both := client.Filter{Statuses: []string{"failed", "running"}, Harnesses: []string{"pi"}, Since: time.Unix(0, 0)}
	if ids, _ := read(both); len(ids) != many {
		t.Errorf("got %d threads, want %d", len(ids), many)
	}
	if ids, _ := read(client.Filter{Since: time.Now().Add(time.Hour)}); ids != nil {
		t.Errorf("began later: %v", ids)
	}
	page, err := l.Page(t.Context(), client.Filter{}, 3, "")
	if err != nil || len(page.Threads) != 3 || page.Cursor == "" {
		t.Errorf("got %+v, %v", page, err)
	}
	v, err := l.Thread(t.Context(), "t001")
	if err != nil || v.Status != thread.StatusRunning {
		t.Errorf("got %+v, %v", v, err)
	}
	if _, err := l.Thread(t.Context(), "never"); !client.NoThread(err) {
		t.Errorf("of no thread: %v", err)
	}
	var refused *client.StatusError
	if _, err := l.Page(t.Context(), client.Filter{Statuses: []string{"odd"}}, 0, ""); !errors.As(err, &refused) ||
		refused.Code != "status" {
		t.Errorf("of a status that is none: %v", err)
	}
}

// A watched list is its page and then what changes, and the page again after the connection is lost.
func TestListClientWatch(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	post := func(id, entry string) {
		t.Helper()
		if a := s.do("POST", "/api/stream/arbe-thread-"+id, writer(t, id), entry); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	post("t1", signal("r1", "running", thread.TypeStatus, `,"status":"running"`))
	l := listClient(t, s)
	// The second one starts a millisecond later, at least.
	first, err := l.Thread(t.Context(), "t1")
	for err == nil && thread.Stamp(time.Now()) <= first.StartedAt {
		runtime.Gosched()
	}
	post("t2", signal("r1", "running", thread.TypeStatus, `,"status":"running"`))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []string
	pages := 0
	next := func() { // brings the next event about
		switch len(got) {
		case 1:
			post("t1", signal("r1", "end.0", thread.TypeStatus, `,"status":"completed"`))
		case 2:
			gone := mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeDelete}})
			if a := s.do("DELETE", "/v1/stream/arbe-thread-t1", gone, ""); a.status != 204 {
				t.Errorf("got %+v", a)
			}
		case 3:
			s.srv.CloseClientConnections()
		default:
			cancel()
		}
	}
	err = l.Watch(ctx, client.Filter{Statuses: []string{thread.StatusRunning}}, 10, func(page client.ListPage) error {
		ids := []string{"page"}
		for _, v := range page.Threads {
			ids = append(ids, v.ID)
		}
		got = append(got, strings.Join(ids, " "))
		pages++
		next()
		return nil
	}, func(c client.Change) error {
		if c.Summary.ID == "t2" {
			return nil // the page has it, and what changed while the page was made comes again
		}
		got = append(got, fmt.Sprintf("%s %s deleted %v", c.Summary.ID, c.Summary.Status, c.Deleted))
		next()
		return nil
	})
	want := []string{"page t2 t1", "t1 completed deleted false", "t1  deleted true", "page t2"}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	own := errors.New("enough")
	err = l.Watch(t.Context(), client.Filter{}, 1, func(client.ListPage) error { return own }, nil)
	if !errors.Is(err, own) {
		t.Errorf("an error of the reader: %v", err)
	}
}

// A thread may be made without entries. It is no thread of the list then, and it can be read.
func TestCreateThread(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serveOn(t, open(t), func(*server.Server) {})
			c := &client.Client{Base: thread.BaseURL(url), Thread: "t1", Token: client.StaticToken(writer(t, "t1"))}
			read := func() error {
				_, err := c.Read(t.Context(), "0", false, func(thread.Entry) error { return nil })
				return err
			}
			if err := read(); !client.NoThread(err) || client.Foreign(err) {
				t.Errorf("before: %v", err)
			}
			for range 2 {
				if err := c.Create(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if err := read(); err != nil {
				t.Errorf("after: %v", err)
			}
			if _, _, err := c.Summary(t.Context()); err == nil {
				t.Error("it has a summary")
			}
		})
	}
}
