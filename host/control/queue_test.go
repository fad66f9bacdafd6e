package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/rows"
)

// counting is a host that counts its launches.
type counting struct {
	mu       sync.Mutex
	launched map[string]int
	launch   func(ctx context.Context, o rows.Task) error // nil for one that succeeds
}

func (c *counting) Announce(context.Context, rows.Task) error { return nil }

func (c *counting) Launch(ctx context.Context, o rows.Task) (again bool, err error) {
	c.mu.Lock()
	if c.launched == nil {
		c.launched = map[string]int{}
	}
	c.launched[o.Thread]++
	c.mu.Unlock()
	if c.launch != nil {
		return false, c.launch(ctx, o)
	}
	return false, nil
}

func (c *counting) Refuse(context.Context, rows.Task, error) error { return errors.New("refused") }

func (c *counting) count(thread string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.launched[thread]
}

// play runs provisioners until a condition, and stops them.
func play(t *testing.T, until func() bool, all ...provision.Provisioner) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, p := range all {
		p.Every, p.Log = 5*time.Millisecond, slog.New(slog.DiscardHandler)
		running.Go(func() { check(t, p.Run(ctx)) })
	}
	for !until() {
		time.Sleep(time.Millisecond) // between two looks
	}
	cancel()
	running.Wait()
}

// ended reports whether no task is left in a database.
func ended(t *testing.T, db *control.DB) func() bool {
	return func() bool {
		return len(must(control.Queue{DB: db, Host: "looks"}.Waiting(t.Context()))(t)) == 0
	}
}

// Two hosts launch twenty tasks, each once.
func TestProvisioners(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	h := newHouse(t, db)
	d := delegation(t, db, h)
	var ids []string
	for range 20 {
		ids = append(ids, delegated(db.Host().Delegate(t.Context(), d))(t).Thread)
	}
	a, b := &counting{}, &counting{}
	play(t, ended(t, db),
		provision.Provisioner{Queue: control.Queue{DB: db, Host: "a"}, Host: a},
		provision.Provisioner{Queue: control.Queue{DB: db, Host: "b"}, Host: b})
	for _, id := range ids {
		if n := a.count(id) + b.count(id); n != 1 {
			t.Errorf("task %s was launched %d times", id, n)
		}
	}
	if n := len(a.launched) + len(b.launched); n != len(ids) {
		t.Errorf("%d tasks were launched", n)
	}
}

// The task of a host that has died is another's after the lease. What the dead one does later has no effect.
func TestDeadProvisioner(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	id := delegated(db.Host().Delegate(t.Context(), delegation(t, db, newHouse(t, db))))(t).Thread
	dead := control.Queue{DB: db, Host: "dead"}
	if took := must(dead.Take(t.Context(), time.Hour, 10))(t); len(took) != 1 || took[0].Thread != id {
		t.Fatalf("took %+v", took)
	}
	other := control.Queue{DB: db, Host: "other"}
	if took := must(other.Take(t.Context(), time.Hour, 10))(t); len(took) != 0 {
		t.Errorf("took %+v before the lease's end", took)
	}
	check(t, dead.Renew(t.Context(), id, time.Millisecond))
	var attempts int
	c := &counting{launch: func(_ context.Context, o rows.Task) error {
		attempts = o.Attempts
		for _, err := range []error{
			dead.Renew(t.Context(), id, time.Hour), dead.PutBack(t.Context(), id, 0, false), dead.Done(t.Context(), id),
		} {
			is(t, err, rows.ErrLost)
		}
		return nil
	}}
	play(t, ended(t, db), provision.Provisioner{Queue: other, Host: c})
	if c.count(id) != 1 || attempts != 2 {
		t.Errorf("%d launches, at attempt %d", c.count(id), attempts)
	}
}

// A host that is stopped in its launch leaves it to another one at once.
func TestStoppedProvisioner(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	id := delegated(db.Host().Delegate(t.Context(), delegation(t, db, newHouse(t, db))))(t).Thread
	stopped := &counting{launch: func(ctx context.Context, _ rows.Task) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	play(t, func() bool { return stopped.count(id) > 0 },
		provision.Provisioner{Queue: control.Queue{DB: db, Host: "a"}, Host: stopped})
	took := must(control.Queue{DB: db, Host: "b"}.Take(t.Context(), time.Hour, 1))(t)
	if len(took) != 1 || took[0].Attempts != 1 {
		t.Errorf("took %+v", took)
	}
}

// A launch that is left to another host after it has got its box does not share a box: the next one is the task's own,
// too, and is deleted after the run.
func TestTaskWithBoxPutBack(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	h, q := newHouse(t, db), control.Queue{DB: db, Host: "a"}
	d := delegation(t, db, h)
	own := delegated(db.Host().Delegate(t.Context(), d))(t)
	box := must(resolve(t.Context(), db, d.Parent, ""))(t).Row.ID
	d.Sandbox = rows.SandboxOfParent
	shared := delegated(db.Host().Delegate(t.Context(), d))(t)
	for range 2 {
		for _, o := range must(q.Take(t.Context(), time.Hour, 2))(t) {
			if want := map[string]string{own.Thread: "", shared.Thread: box}[o.Thread]; o.Sandbox != want {
				t.Errorf("it works in the sandbox %q, want %q", o.Sandbox, want)
			}
			check(t, claim(t.Context(), db, o.Thread, o.Run(), ""))
			check(t, q.PutBack(t.Context(), o.Thread, 0, true))
		}
	}
	if got := must(q.Queued(t.Context(), own.Thread))(t).Sandbox; got != "" {
		t.Errorf("it works in the sandbox %q", got)
	}
}

// A deleted house has no task any more, also while it is launched.
func TestDeletedTask(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	h := newHouse(t, db)
	d := delegation(t, db, h)
	id := delegated(db.Host().Delegate(t.Context(), d))(t).Thread
	q := control.Queue{DB: db, Host: "a"}
	must(q.Take(t.Context(), time.Hour, 1))(t)
	check(t, db.Host().DeleteHouse(t.Context(), h.id))
	is(t, q.Renew(t.Context(), id, time.Hour), rows.ErrLost)
	if took := must(q.Take(t.Context(), time.Hour, 1))(t); len(took) != 0 {
		t.Errorf("took %+v", took)
	}
}

// BenchmarkDelegate makes the rows of tasks. It reports how long a caller waits for the child's id.
func BenchmarkDelegate(b *testing.B) {
	db := must(control.Open(b.Context(), databases.New(b), control.Config{}))(b)
	defer db.Close()
	h := newHouse(b, db)
	d := delegation(b, db, h)
	var all []time.Duration
	for i := range b.N {
		d.Prompt = fmt.Sprint("task ", i)
		began := time.Now()
		delegated(db.As(h.member).Delegate(b.Context(), d))(b)
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	b.ReportMetric(all[len(all)*99/100].Seconds()*1000, "ms-p99")
	b.ReportMetric(all[len(all)/2].Seconds()*1000, "ms-median")
}

// A due task whose row is locked, as by the projector that brings it up to date, is taken once it is free.
func TestTakeLocked(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	id := delegated(db.Host().Delegate(t.Context(), delegation(t, db, newHouse(t, db))))(t).Thread
	tx := must(connect(t, url).Begin(t.Context()))(t)
	_ = must(tx.Exec(t.Context(), "select from threads where id = $1 for update", id))(t)
	var took []rows.Task
	var err error
	taken := make(chan struct{})
	go func() {
		took, err = control.Queue{DB: db, Host: "a"}.Take(t.Context(), time.Hour, 1)
		close(taken)
	}()
	ended := func() bool {
		select {
		case <-taken:
			return true
		default:
			return false
		}
	}
	watch := connect(t, url)
	for looked := 0; looked == 0 && !ended(); { // the query that finds no free row has run
		check(t, watch.QueryRow(t.Context(), `select count(*) from pg_stat_activity
			where query like '%exists (select from due%' and pid <> pg_backend_pid()`).Scan(&looked))
	}
	check(t, tx.Rollback(t.Context()))
	<-taken
	if check(t, err); len(took) != 1 || took[0].Thread != id {
		t.Errorf("taken: %+v", took)
	}
}

// A task that is to be withdrawn and the provisioners race for it: one of them gets it. The one who withdraws gets also
// a task that is not due, and never one that a host has.
func TestTakeOne(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	h := newHouse(t, db)
	d := delegation(t, db, h)
	q := control.Queue{DB: db, Host: "withdraws"}
	var ids []string
	for range 20 {
		ids = append(ids, delegated(db.Host().Delegate(t.Context(), d))(t).Thread)
	}
	launches := &counting{}
	withdrawn := map[string]bool{}
	var racing sync.WaitGroup
	racing.Go(func() {
		for _, id := range slices.Backward(ids) { // the provisioner begins with the others
			o, is, err := q.TakeOne(t.Context(), id, time.Hour)
			check(t, err)
			if withdrawn[id] = is; is && o.Thread == id {
				check(t, q.Done(t.Context(), id))
			}
		}
	})
	play(t, ended(t, db), provision.Provisioner{Queue: control.Queue{DB: db, Host: "a"}, Host: launches})
	racing.Wait()
	for _, id := range ids {
		if n := launches.count(id); n > 1 || (n == 1) == withdrawn[id] {
			t.Errorf("task %s was launched %d times, withdrawn %v", id, n, withdrawn[id])
		}
	}
	is := func(id string) bool {
		_, is, err := q.TakeOne(t.Context(), id, 0)
		check(t, err)
		return is
	}
	id := delegated(db.Host().Delegate(t.Context(), d))(t).Thread
	other := control.Queue{DB: db, Host: "b"}
	if took := must(other.Take(t.Context(), time.Hour, 1))(t); len(took) != 1 || is(id) || is(ids[0]) {
		t.Errorf("taken from a host, or not waiting: %+v", took)
	}
	check(t, other.PutBack(t.Context(), id, time.Hour, false))
	if o := must(q.Queued(t.Context(), id))(t); !is(id) || o.Prompt != "do it" || o.Attempts != 1 {
		t.Errorf("not due, and not taken: %+v", o)
	}
	if _, err := q.Queued(t.Context(), ids[0]); !errors.Is(err, rows.ErrAbsent) {
		t.Errorf("a task that has ended waits: %v", err)
	}
}

// The thread of a task that waits can be deleted, and is not launched then. That of a task that a host launches stays.
func TestDeleteQueued(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	h := newHouse(t, db)
	d := delegation(t, db, h)
	q := control.Queue{DB: db, Host: "a"}
	gone, held := delegated(db.Host().Delegate(t.Context(), d))(t), delegated(db.Host().Delegate(t.Context(), d))(t)
	if !must(db.As(h.member).Thread(t.Context(), gone.Thread))(t).Waits {
		t.Error("the row of a task that waits does not say so")
	}
	check(t, db.As(h.member).DeleteThread(t.Context(), gone.Thread, nil))
	if took := must(q.Take(t.Context(), time.Hour, 9))(t); len(took) != 1 || took[0].Thread != held.Thread {
		t.Errorf("took %+v", took)
	}
	for _, id := range []string{held.Thread, d.Parent} {
		if err := db.As(h.member).DeleteThread(t.Context(), id, nil); !errors.Is(err, rows.ErrRunning) {
			t.Errorf("deleted thread %s with a task that is launched: %v", id, err)
		}
	}
	check(t, q.PutBack(t.Context(), held.Thread, time.Hour, true))
	check(t, db.Host().DeleteThread(t.Context(), d.Parent, nil))
}
