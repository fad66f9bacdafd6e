package control_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

// limit has a house run at most n tasks at once.
func limit(t *testing.T, db *control.DB, h house, n int64) {
	t.Helper()
	check(t, db.Host().ChangeHouse(t.Context(), h.id, rows.HouseChange{Runs: &n}))
}

// tasks delegates n tasks of a house, the oldest first.
func tasks(t *testing.T, db *control.DB, h house, n int) (ids []string) {
	t.Helper()
	d := delegation(t, db, h)
	for range n {
		ids = append(ids, delegated(db.Host().Delegate(t.Context(), d))(t).Thread)
	}
	return ids
}

// taken takes tasks, and returns their threads.
func taken(t *testing.T, q control.Queue, n int) (ids []string) {
	t.Helper()
	for _, o := range must(q.Take(t.Context(), time.Hour, n))(t) {
		ids = append(ids, o.Thread)
	}
	slices.Sort(ids)
	return ids
}

// runs has the run of a task begin, as a launch does, and then ends the launch.
func runs(t *testing.T, q control.Queue, c *pgx.Conn, id string) {
	t.Helper()
	status(t, c, id, rows.ThreadRunning)
	check(t, q.Done(t.Context(), id))
}

func status(t *testing.T, c *pgx.Conn, id, status string) {
	t.Helper()
	_ = must(c.Exec(context.Background(), `update threads set status = $2 where id = $1`, id, status))(t)
}

// What gives the place of a task to the next one, and what keeps it. The oldest waiting task is the next one.
func TestPlaces(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	c, ctx := connect(t, url), t.Context()
	q, other := control.Queue{DB: db, Host: "a"}, control.Queue{DB: db, Host: "b"}
	same := func(what string, got, want []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Fatalf("%s: took %q, want %q", what, got, want)
		}
	}
	for _, tt := range []struct {
		name  string
		free  func(h house, id string) // once a host has the task
		again bool                     // the task itself is taken next
		next  bool                     // or the next one is
	}{
		{name: "a host has it", free: func(house, string) {}},
		{name: "it runs", free: func(_ house, id string) { runs(t, q, c, id) }},
		{name: "its host has died", free: func(_ house, id string) {
			check(t, q.Renew(ctx, id, -time.Second))
		}, again: true},
		{name: "its host has died while it ran", free: func(_ house, id string) {
			status(t, c, id, rows.ThreadRunning)
			check(t, q.Renew(ctx, id, -time.Second))
		}, again: true},
		{name: "it was put back while it ran", free: func(_ house, id string) {
			status(t, c, id, rows.ThreadRunning)
			check(t, q.PutBack(ctx, id, 0, false))
		}, again: true},
		{name: "it was put back while it ran, for later", free: func(_ house, id string) {
			status(t, c, id, rows.ThreadRunning)
			check(t, q.PutBack(ctx, id, time.Hour, false))
		}},
		{name: "it was put back for later", free: func(_ house, id string) {
			check(t, q.PutBack(ctx, id, time.Hour, true))
		}, next: true},
		{name: "it was put back", free: func(_ house, id string) {
			check(t, q.PutBack(ctx, id, 0, true))
		}, again: true},
		{name: "it was refused, and its log is not projected yet", free: func(_ house, id string) {
			check(t, q.Done(ctx, id))
		}, next: true},
		{name: "its run has ended", free: func(_ house, id string) {
			runs(t, q, c, id)
			status(t, c, id, rows.ThreadFailed)
		}, next: true},
		{name: "its run has ended, and another one was begun by hand", free: func(_ house, id string) {
			runs(t, q, c, id)
			status(t, c, id, rows.ThreadFailed)
			status(t, c, id, rows.ThreadRunning)
		}},
		{name: "its row is deleted", free: func(_ house, id string) {
			runs(t, q, c, id)
			status(t, c, id, rows.ThreadFailed)
			check(t, db.Host().DeleteThread(ctx, id, nil))
		}, next: true},
		{name: "the limit is larger", free: func(h house, _ string) { limit(t, db, h, 2) }, next: true},
		{name: "the limit is smaller", free: func(h house, id string) {
			limit(t, db, h, 0)
			check(t, q.Done(ctx, id))
		}},
		{name: "the limit is smaller, and its host has died", free: func(h house, id string) {
			limit(t, db, h, 0)
			check(t, q.Renew(ctx, id, -time.Second))
		}, again: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t, db)
			limit(t, db, h, 1)
			ids := tasks(t, db, h, 3)
			same("at first", taken(t, q, 9), ids[:1])
			tt.free(h, ids[0])
			var want []string
			switch {
			case tt.again:
				want = ids[:1]
			case tt.next:
				want = ids[1:2]
			}
			if due := must(q.Due(ctx))(t); due != (want != nil) {
				t.Errorf("a task is to be taken: %v", due)
			}
			same("then", taken(t, other, 9), want)
			if must(q.Due(ctx))(t) {
				t.Error("a task is to be taken after all were")
			}
			limit(t, db, h, rows.NoLimit)
			rest := slices.DeleteFunc(slices.Clone(ids[1:]), func(id string) bool { return slices.Contains(want, id) })
			slices.Sort(rest)
			got := taken(t, other, 9)
			same("without a limit", slices.DeleteFunc(got, func(id string) bool { return id == ids[0] }), rest)
			check(t, db.Host().DeleteHouse(ctx, h.id))
		})
	}
}

// Eight hosts that take at the same time never have more tasks of a house than it may run, and all of another house.
func TestRunsOfHouse(t *testing.T) {
	const hosts, each, most = 8, 15, 3
	db, url := openAlone(t, control.Config{Connections: hosts})
	h, other := newHouse(t, db), newHouse(t, db)
	limit(t, db, h, most)
	tasks(t, db, h, each)
	tasks(t, db, other, each)
	var mu sync.Mutex
	open, done := map[string]int{}, map[string]int{} // by house
	var all sync.WaitGroup
	for n := range hosts {
		c := connect(t, url)
		all.Go(func() {
			q := control.Queue{DB: db, Host: fmt.Sprint("host ", n)}
			for {
				took := must(q.Take(context.Background(), time.Hour, 4))(t)
				mu.Lock()
				for _, o := range took {
					if open[o.House]++; o.House == h.id && open[h.id] > most {
						t.Errorf("%d tasks of the house at once", open[h.id])
					}
				}
				ended := t.Failed() || done[h.id]+done[other.id] == 2*each
				mu.Unlock()
				if ended {
					return
				}
				for _, o := range took {
					runs(t, q, c, o.Thread)
					mu.Lock()
					open[o.House]--
					done[o.House]++
					mu.Unlock()
					status(t, c, o.Thread, rows.ThreadCompleted)
				}
			}
		})
	}
	all.Wait()
	if done[h.id] != each || done[other.id] != each {
		t.Errorf("launched %d and %d of %d", done[h.id], done[other.id], each)
	}
}

// Of eight hosts that take at the same moment only as many get tasks of a house as it may run. Those of a house without
// a limit are not held up, also where they are younger.
func TestRunsAtOnce(t *testing.T) {
	const hosts, most = 8, 3
	db, _ := openAlone(t, control.Config{Connections: hosts})
	h, other := newHouse(t, db), newHouse(t, db)
	limit(t, db, h, most)
	mine, theirs := tasks(t, db, h, 15), tasks(t, db, other, 15)
	var mu sync.Mutex
	var all sync.WaitGroup
	var got []string
	for n := range hosts {
		all.Go(func() {
			q := control.Queue{DB: db, Host: fmt.Sprint("host ", n)}
			took := must(q.Take(context.Background(), time.Hour, 30))(t)
			mu.Lock()
			defer mu.Unlock()
			for _, o := range took {
				got = append(got, o.Thread)
			}
		})
	}
	all.Wait()
	want := slices.Concat(mine[:most], theirs)
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("took %q, want %q", got, want)
	}
	sum := must(db.Host().HouseRuns(t.Context(), h.id))(t)
	if want := (rows.HouseRuns{Running: most, Waiting: 12}); sum != want {
		t.Errorf("got %+v, want %+v", sum, want)
	}
	sum = must(db.Host().HouseRuns(t.Context(), other.id))(t)
	if want := (rows.HouseRuns{Running: 15}); sum != want {
		t.Errorf("got %+v, want %+v", sum, want)
	}
	held := must(control.Queue{DB: db}.Held(t.Context()))(t)
	for _, id := range mine {
		_, is, err := db.Host().HeldTask(t.Context(), id)
		in := slices.Contains(held, rows.HeldTask{Thread: id, Runs: most})
		if check(t, err); is != in || is == slices.Contains(want, id) {
			t.Errorf("task %s waits: %v, and in the list: %v", id, is, in)
		}
	}
	if len(held) != 12 {
		t.Errorf("got %d tasks that wait", len(held))
	}
}

// A limit that only SQL could write holds the tasks of its house, and no others.
func TestUnreadableLimit(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	c := connect(t, url)
	q := control.Queue{DB: db, Host: "a"}
	for _, tt := range []struct {
		config string
		want   int
	}{
		{`{"runs": "many"}`, 0},
		{`{"runs": null}`, 0},
		{`{"runs": -1}`, 0},
		{`{"runs": [1]}`, 0},
		{`{"runs": 1.5}`, 1},
		{`{"runs": 1e300}`, 2},
	} {
		h, other := newHouse(t, db), newHouse(t, db)
		_ = must(c.Exec(t.Context(), `update houses set config = $2 where id = $1`, h.id, tt.config))(t)
		want := slices.Concat(tasks(t, db, h, 2)[:tt.want], tasks(t, db, other, 1))
		slices.Sort(want)
		if got := taken(t, q, 9); !slices.Equal(got, want) {
			t.Errorf("%s: took %q, want %q", tt.config, got, want)
		}
		check(t, db.Host().DeleteHouse(t.Context(), h.id))
	}
}

// While a host takes tasks of a house, which locks it, others take those of other houses, and then those of this one.
func TestTakeLockedHouse(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	h, other := newHouse(t, db), newHouse(t, db)
	limit(t, db, h, 1)
	mine, theirs := tasks(t, db, h, 2), tasks(t, db, other, 1)
	tx := must(connect(t, url).Begin(t.Context()))(t)
	_ = must(tx.Exec(t.Context(), `select from houses where id = $1 for no key update`, h.id))(t)
	q := control.Queue{DB: db, Host: "a"}
	if got := taken(t, q, 9); !slices.Equal(got, theirs) {
		t.Errorf("took %q, want %q", got, theirs)
	}
	if !must(q.Due(t.Context()))(t) {
		t.Error("the task of the locked house is not to be taken")
	}
	check(t, tx.Rollback(t.Context()))
	if got := taken(t, q, 9); !slices.Equal(got, mine[:1]) {
		t.Errorf("took %q, want %q", got, mine[:1])
	}
}

// A task that waits for its house can be withdrawn, and then the next one is not held up by it.
func TestWithdrawHeld(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	h, c := newHouse(t, db), connect(t, url)
	limit(t, db, h, 1)
	ids := tasks(t, db, h, 3)
	q, withdraws := control.Queue{DB: db, Host: "a"}, control.Queue{DB: db, Host: "withdraws"}
	taken(t, q, 9)
	if _, is, err := withdraws.TakeOne(t.Context(), ids[1], time.Hour); err != nil || !is {
		t.Fatalf("not taken: %v", err)
	}
	check(t, withdraws.Done(t.Context(), ids[1]))
	runs(t, q, c, ids[0])
	status(t, c, ids[0], rows.ThreadCompleted)
	if got := taken(t, q, 9); !slices.Equal(got, ids[2:]) {
		t.Errorf("took %q, want %q", got, ids[2:])
	}
}
