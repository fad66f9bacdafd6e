package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// chats returns n threads that the house's bot drives.
func chats(t *testing.T, db *control.DB, h house, n int) (ids []string) {
	t.Helper()
	for range n {
		ids = append(ids, driven(t, db, h))
	}
	return ids
}

// admitted reports whether a run of a thread is admitted.
func admitted(t *testing.T, db *control.DB, thread string) bool {
	t.Helper()
	err := db.Host().Admit(t.Context(), thread, "r-"+thread)
	if held, is := errors.AsType[*rows.HeldError](err); is {
		if want := fmt.Sprintf("the house runs %d at once", held.Runs); err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		return false
	}
	check(t, err)
	return true
}

// Runs for chats have the places of tasks, and each thread has one.
func TestAdmit(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	h, c, ctx := newHouse(t, db), connect(t, url), t.Context()
	q := control.Queue{DB: db, Host: "a"}
	want := func(running, waiting int) {
		t.Helper()
		got := must(db.Host().HouseRuns(ctx, h.id))(t)
		if want := (rows.HouseRuns{Running: running, Waiting: waiting}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	turns := func() { // however long this test takes, the turns last
		_ = must(c.Exec(ctx, `update waiting_runs set until = now() + interval '1 day'`))(t)
	}
	ids := chats(t, db, h, 4)
	if !admitted(t, db, ids[0]) || must(db.Host().Thread(ctx, ids[0]))(t).Status != rows.ThreadIdle {
		t.Error("without a limit a run is not admitted, or claims its thread")
	}
	limit(t, db, h, 2)
	task := tasks(t, db, h, 2)
	if got := taken(t, q, 1); !slices.Equal(got, task[:1]) {
		t.Fatalf("took %q", got)
	}
	for range 2 { // and again
		if !admitted(t, db, ids[0]) {
			t.Error("a run is not admitted")
		}
	}
	if th := must(db.Host().Thread(ctx, ids[0]))(t); th.Status != rows.ThreadRunning || th.ClaimedRun != "r-"+ids[0] {
		t.Errorf("admitted: %+v", th)
	}
	want(2, 1)
	if admitted(t, db, ids[1]) || admitted(t, db, ids[2]) {
		t.Error("a run above the limit is admitted")
	}
	turns()
	want(2, 3)

	// A place goes to the run that has waited longest, and not to the task, which is older.
	runs(t, q, c, task[0])
	status(t, c, task[0], rows.ThreadCompleted)
	if admitted(t, db, ids[2]) || len(taken(t, q, 9)) > 0 || must(q.Due(ctx))(t) {
		t.Error("the turn of another run, or of a run for a chat, is taken")
	}
	if !admitted(t, db, ids[1]) {
		t.Error("the first run that waits is not admitted")
	}
	want(2, 2)

	// A run that is not asked for any more has lost its turn.
	_ = must(c.Exec(ctx, `update waiting_runs set until = now()`))(t)
	check(t, boxes(db).Ended(ctx, ids[1], "r-"+ids[1], rows.ThreadFailed))
	if got := taken(t, q, 9); !slices.Equal(got, task[1:]) {
		t.Errorf("took %q, want the task", got)
	}
	if admitted(t, db, ids[3]) || admitted(t, db, ids[2]) {
		t.Error("a run above the limit is admitted")
	}
	turns()
	want(2, 2)

	// Another run has the thread: its row is as before, and the place is the next one's.
	check(t, db.Host().Dismiss(ctx, ids[0], "another"))
	if admitted(t, db, ids[3]) {
		t.Error("the run of another host is dismissed")
	}
	check(t, db.Host().Dismiss(ctx, ids[0], "r-"+ids[0]))
	if th := must(db.Host().Thread(ctx, ids[0]))(t); th.Status != rows.ThreadIdle || th.ClaimedRun != "" {
		t.Errorf("dismissed: %+v", th)
	}
	if admitted(t, db, ids[2]) || !admitted(t, db, ids[3]) {
		t.Error("a run that was asked for again has its former turn")
	}
	check(t, db.Host().DeleteThread(ctx, ids[2], nil))
	want(2, 0)
	check(t, db.Host().Admit(ctx, "none", "r")) // the launch refuses it
}

// Two hosts ask for the last place of a house at the same moment: the second one gets its answer when the first one has
// the place, and waits.
func TestAdmitLockedHouse(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	h, ctx := newHouse(t, db), t.Context()
	limit(t, db, h, 1)
	ids := chats(t, db, h, 2)
	tx := must(connect(t, url).Begin(ctx))(t)
	_ = must(tx.Exec(ctx, `select from houses where id = $1 for no key update`, h.id))(t)
	first := tx.Conn().PgConn().PID()
	_ = must(tx.Exec(ctx, `update threads set status = 'running' where id = $1`, ids[0]))(t)
	answer := make(chan error, 1)
	go func() { answer <- db.Host().Admit(ctx, ids[1], "r") }()
	for waits, look := false, connect(t, url); !waits; {
		select {
		case err := <-answer:
			t.Fatalf("answered while another host takes the place: %v", err)
		default:
		}
		check(t, look.QueryRow(ctx, `select exists (select from pg_stat_activity
			where $1 = any (pg_blocking_pids(pid)))`, int32(first)).Scan(&waits))
	}
	check(t, tx.Commit(ctx))
	err := <-answer
	if _, held := errors.AsType[*rows.HeldError](err); !held {
		t.Errorf("got %v, want that the run waits", err)
	}
}

// dying is the rows of a host that dies when it has a run admitted.
type dying struct {
	provision.Rows
	kill func()
}

func (d dying) Thread(ctx context.Context, _ string) (t rows.Thread, err error) {
	d.kill()
	<-ctx.Done()
	return t, context.Cause(ctx)
}

// The place of a run whose host died before it was on the log is its own: another host launches it there. If none does,
// a reconciler frees the place, and not while the run could still begin.
func TestAdmittedHostDies(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	h, c, ctx := newHouse(t, db), connect(t, url), t.Context()
	limit(t, db, h, 1)
	ids := chats(t, db, h, 2)
	log, server := fakethread.New(t, nil), http.NewServeMux()
	server.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	server.Handle("/", log)
	served := httptest.NewServer(server)
	t.Cleanup(served.Close)
	clientOf := func(id string) (*client.Client, error) {
		cl := log.Client()
		cl.Base, cl.Thread = thread.BaseURL(served.URL), id
		return cl, nil
	}
	life, kill := context.WithCancel(ctx)
	defer kill()
	host := provision.Host{
		Rows:   func(context.Context) (provision.Rows, error) { return dying{db.Host(), kill}, nil },
		Client: clientOf, Log: slog.New(slog.DiscardHandler),
	}
	_, err := host.Resume(life, provision.Resume{Thread: ids[0], Run: "r-" + ids[0], Author: h.owner})
	if !errors.Is(err, provision.ErrStopped) || len(log.Entries()) > 0 {
		t.Fatalf("got %v, and %d entries", err, len(log.Entries()))
	}
	reconciler := reconcile.Reconciler{Client: clientOf, Rows: boxes(db)}
	pass := func(ids ...string) {
		t.Helper()
		check(t, reconciler.All(ctx, ids, func(string, reconcile.State) {}))
	}
	age := func(of time.Duration) { // of the claim
		_ = must(c.Exec(ctx, `update threads set claimed_at = now() - $1::interval where claimed_run is not null`, of))(t)
	}
	age(0)
	if pass(ids...); admitted(t, db, ids[1]) || !admitted(t, db, ids[0]) {
		t.Error("the run that was admitted has lost its place to another one")
	}
	age(2 * rows.ClaimTimeout)
	if admitted(t, db, ids[1]) {
		t.Error("the place is free before a reconciler has looked")
	}
	if pass(); !admitted(t, db, ids[1]) || admitted(t, db, ids[0]) {
		t.Error("the place of a run that never began is not the next one's")
	}
	if th := must(db.Host().Thread(ctx, ids[0]))(t); th.Status != rows.ThreadIdle || th.ClaimedRun != "" {
		t.Errorf("left: %+v", th)
	}
}

// Eight hosts that launch runs for chats and tasks never have more of them than the house may, and get through with
// all: whatever ends first, and also where runs are dismissed.
func TestRunsOfBoth(t *testing.T) {
	const hosts, each, most = 8, 10, 3
	db, url := openAlone(t, control.Config{Connections: hosts})
	h := newHouse(t, db)
	limit(t, db, h, most)
	wait := chats(t, db, h, each)
	tasks(t, db, h, each)
	var mu sync.Mutex
	open, done := 0, 0
	begins := func() {
		mu.Lock()
		defer mu.Unlock()
		if open++; open > most {
			t.Errorf("%d runs at once", open)
		}
	}
	ends := func() { // while it has its place
		mu.Lock()
		defer mu.Unlock()
		open, done = open-1, done+1
	}
	next := func() (id string) {
		mu.Lock()
		defer mu.Unlock()
		if len(wait) > 0 {
			id, wait = wait[0], wait[1:]
		}
		return id
	}
	ctx := t.Context()
	var all sync.WaitGroup
	for n := range hosts {
		c, rnd := connect(t, url), rand.New(rand.NewPCG(1, uint64(n)))
		if n%2 == 0 {
			all.Go(func() {
				for id := next(); id != "" && !t.Failed(); id = next() {
					for !admitted(t, db, id) {
						pause.For(ctx, time.Millisecond)
					}
					begins()
					if rnd.IntN(2) == 0 {
						ends()
						check(t, db.Host().Dismiss(ctx, id, "r-"+id))
						continue
					}
					ends()
					check(t, boxes(db).Ended(ctx, id, "r-"+id, rows.ThreadCompleted))
				}
			})
			continue
		}
		all.Go(func() {
			q := control.Queue{DB: db, Host: fmt.Sprint("host ", n)}
			for !t.Failed() {
				for _, o := range must(q.Take(ctx, time.Hour, 2))(t) {
					begins()
					runs(t, q, c, o.Thread)
					ends()
					status(t, c, o.Thread, rows.ThreadCompleted)
				}
				mu.Lock()
				ended := done == 2*each
				mu.Unlock()
				if ended {
					return
				}
			}
		})
	}
	all.Wait()
	if done != 2*each {
		t.Errorf("%d of %d runs", done, 2*each)
	}
}
