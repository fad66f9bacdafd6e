package control_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

// driven makes a thread that the house's bot drives.
func driven(t testing.TB, db *control.DB, h house) string {
	t.Helper()
	n := rows.NewThread{House: h.id, Environment: h.env, Agent: h.bot}
	return must(db.Host().CreateThread(t.Context(), n))(t).ID
}

// Of 64 claims at once one has the thread; its run may claim again.
func TestClaims(t *testing.T) {
	db, _ := open(t, control.Config{Connections: 16})
	ctx, h := t.Context(), newHouse(t, db)
	id := driven(t, db, h)
	must(db.Host().Resolve(ctx, id, control.Want{}))(t)
	var all sync.WaitGroup
	errs := make([]error, 64)
	for i := range errs {
		all.Go(func() { _, errs[i] = db.As(h.member).Claim(ctx, id, fmt.Sprint("r", i)) })
	}
	all.Wait()
	winner := -1
	for i, err := range errs {
		if err == nil && winner >= 0 {
			t.Errorf("runs %d and %d have the thread", winner, i)
		} else if err == nil {
			winner = i
		} else {
			is(t, err, rows.ErrRunning)
		}
	}
	if winner < 0 {
		t.Fatal("no run has the thread")
	}
	run := fmt.Sprint("r", winner)
	got := must(db.Host().Claim(ctx, id, run))(t)
	if got.ClaimedRun != run || got.Status != rows.ThreadRunning {
		t.Errorf("got %+v", got)
	}
}

// A claim ends by the verdict of its run and no other; a chat can't be claimed.
func TestAdopt(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	ctx, h, host := t.Context(), newHouse(t, db), db.Host()
	id := driven(t, db, h)
	must(host.Claim(ctx, id, "r1"))(t)
	for _, tt := range []struct{ run, verdict, want string }{
		{"r0", rows.ThreadFailed, rows.ThreadRunning},
		{"r1", rows.ThreadFailed, rows.ThreadFailed},
		{"r1", rows.ThreadCompleted, rows.ThreadFailed},
	} {
		check(t, boxes(db).Ended(ctx, id, tt.run, tt.verdict))
		if got := must(host.Thread(ctx, id))(t); got.Status != tt.want {
			t.Errorf("%s %s: the thread is %s", tt.run, tt.verdict, got.Status)
		}
	}
	got := must(host.Claim(ctx, id, "r2"))(t) // a thread that has ended runs again
	if got.ClaimedRun != "r2" {
		t.Errorf("got %+v", got)
	}
	chat := must(host.CreateThread(ctx, rows.NewThread{House: h.id}))(t)
	_, err := host.Claim(ctx, chat.ID, "r1")
	is(t, err, rows.ErrInvalid)
	_, err = host.Claim(ctx, "none", "r1")
	is(t, err, rows.ErrAbsent)
}

// A thread's sandbox: made once by many callers, shared, live, dead, replaced for all of its threads at once.
func TestResolve(t *testing.T) {
	db, _ := open(t, control.Config{Connections: 8})
	ctx, h, host := t.Context(), newHouse(t, db), db.Host()
	first := driven(t, db, h)
	resolve := func(threads ...string) (made control.Resolution, sandboxes []string) {
		t.Helper()
		var all sync.WaitGroup
		var mu sync.Mutex
		for _, id := range threads {
			all.Go(func() {
				r, err := db.As(h.member).Resolve(ctx, id, control.Want{Ephemeral: true})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				sandboxes = append(sandboxes, r.Sandbox.ID)
				if r.Made && made.Made {
					t.Error("two sandboxes are made")
				} else if r.Made {
					made = r
				}
			})
		}
		all.Wait()
		slices.Sort(sandboxes)
		return made, slices.Compact(sandboxes)
	}
	made, ids := resolve(slices.Repeat([]string{first}, 16)...)
	if !made.Made || len(ids) != 1 || made.Sandbox.Status != rows.BoxPending || made.From != "" ||
		!made.Sandbox.Ephemeral || made.Sandbox.Environment != h.env {
		t.Fatalf("got %+v, %v", made, ids)
	}
	box := made.Sandbox.ID
	check(t, errors.Join(host.Live(ctx, box, "machine-1"), host.Live(ctx, box, "machine-1")))
	second := must(host.CreateThread(ctx, rows.NewThread{House: h.id, Sandbox: box, Agent: h.bot}))(t).ID
	must(host.Claim(ctx, first, "r1"))(t)
	for range 2 {
		check(t, boxes(db).Gone(ctx, box))
	}
	check(t, boxes(db).Ended(ctx, first, "r1", rows.ThreadFailed))
	_, err := host.Claim(ctx, second, "r2")
	is(t, err, rows.ErrDeadBox)

	made, ids = resolve(append(slices.Repeat([]string{first}, 8), slices.Repeat([]string{second}, 8)...)...)
	slices.Sort(made.Threads)
	want := []string{first, second}
	slices.Sort(want)
	if !made.Made || len(ids) != 1 || made.From != box || !slices.Equal(made.Threads, want) || ids[0] == box {
		t.Errorf("got %+v, %v", made, ids)
	}
	must(host.Claim(ctx, second, "r2"))(t)
}

// A sandbox that is pending for too long is dead, and its machine is to be deleted should it come; a thread without any
// environment has no sandbox.
func TestExpire(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	ctx, h, host := t.Context(), newHouse(t, db), db.Host()
	id := driven(t, db, h)
	box := must(host.Resolve(ctx, id, control.Want{Patience: time.Minute}))(t).Sandbox.ID
	check(t, boxes(db).Expire(ctx))
	if all := must(boxes(db).Boxes(ctx, nil))(t); len(all) != 1 || all[0].Status != rows.BoxPending {
		t.Errorf("got %v", all)
	}
	_ = must(connect(t, url).Exec(ctx, `update sandboxes set pending_until = now() - interval '1 second'`))(t)
	check(t, boxes(db).Expire(ctx))
	is(t, host.Live(ctx, box, "late"), rows.ErrDeadBox)
	is(t, host.Live(ctx, "none", "late"), rows.ErrAbsent)
	if all := must(boxes(db).Boxes(ctx, nil))(t); len(all) != 1 || all[0].ID != box ||
		all[0].Status != rows.BoxDead || all[0].DestroyedAt != nil {
		t.Errorf("got %v", all)
	}
	check(t, boxes(db).Gone(ctx, box))
	if all := must(boxes(db).Boxes(ctx, nil))(t); len(all) != 0 {
		t.Errorf("got %v", all)
	}
	if r := must(host.Resolve(ctx, id, control.Want{}))(t); r.From != box {
		t.Errorf("got %+v", r)
	}
	if all := must(host.Sandboxes(ctx, h.id))(t); len(all) != 1 {
		t.Errorf("got %v", all)
	}
	bare := must(host.CreateThread(ctx, rows.NewThread{House: h.id, Agent: h.bot}))(t).ID
	_, err := host.Resolve(ctx, bare, control.Want{})
	is(t, err, rows.ErrNoRecipe)
	check(t, host.SetDefaultEnvironment(ctx, h.id, h.env))
	must(host.Resolve(ctx, bare, control.Want{}))(t)
}

// The environment of a thread's next box is the one that is wanted, else the dead box's, the thread's, its house's; a
// box that is not dead has its own. Place and Resolve agree.
func TestPlace(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	ctx, h, host := t.Context(), newHouse(t, db), db.Host()
	recipe := func(name, runtime string) string {
		return must(host.CreateEnvironment(ctx, h.id, rows.Recipe{Name: name, Runtime: runtime}))(t).ID
	}
	wanted, house := recipe("wanted", "local"), recipe("house", "daytona")
	thread := func(environment string) string {
		n := rows.NewThread{House: h.id, Environment: environment, Agent: h.bot}
		return must(host.CreateThread(ctx, n))(t).ID
	}
	in := func(environment string, gone bool) string {
		id := thread(h.env)
		box := must(host.Resolve(ctx, id, control.Want{Environment: environment}))(t).Sandbox.ID
		if gone {
			check(t, boxes(db).Gone(ctx, box))
		}
		return id
	}
	bare := thread("")
	if p := must(host.Place(ctx, bare, ""))(t); p.House != h.id || p.Environment.ID != "" || p.Provider != "" {
		t.Errorf("a place without an environment: %+v", p)
	}
	check(t, host.SetDefaultEnvironment(ctx, h.id, house))
	for _, tt := range []struct {
		name, thread, wanted, want string
		live                       bool
	}{
		{"the house's", bare, "", house, false},
		{"the thread's", thread(h.env), "", h.env, false},
		{"the wanted one", thread(h.env), wanted, wanted, false},
		{"the box's", in(wanted, false), house, wanted, true},
		{"the dead box's", in(wanted, true), "", wanted, false},
		{"the wanted one, not the dead box's", in(wanted, true), house, house, false},
	} {
		p := must(host.Place(ctx, tt.thread, tt.wanted))(t)
		e := must(host.Environment(ctx, tt.want))(t)
		if p.Environment.ID != tt.want || p.Provider != e.Runtime || p.Live != tt.live {
			t.Errorf("%s: got %+v", tt.name, p)
		}
		r := must(host.Resolve(ctx, tt.thread, control.Want{Environment: tt.wanted}))(t)
		if r.Sandbox.Environment != tt.want || r.Made == tt.live {
			t.Errorf("%s: Resolve takes %+v", tt.name, r)
		}
	}
	_, err := host.Place(ctx, "none", "")
	is(t, err, rows.ErrAbsent)
}
