package control_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/lease"
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
	must(resolve(ctx, db, id, ""))(t)
	var all sync.WaitGroup
	errs := make([]error, 64)
	for i := range errs {
		all.Go(func() { errs[i] = claim(ctx, db, id, fmt.Sprint("r", i), "") })
	}
	all.Wait()
	winner := -1
	for i, err := range errs {
		if err == nil && winner >= 0 {
			t.Errorf("runs %d and %d have the thread", winner, i)
		} else if err == nil {
			winner = i
		} else if !errors.As(err, new(*rows.ClaimedError)) {
			t.Errorf("run %d: %v", i, err)
		}
	}
	if winner < 0 {
		t.Fatal("no run has the thread")
	}
	run := fmt.Sprint("r", winner)
	check(t, claim(ctx, db, id, run, ""))
	got := must(db.Host().Thread(ctx, id))(t)
	if got.ClaimedRun != run || got.Status != rows.ThreadRunning {
		t.Errorf("got %+v", got)
	}
}

// A claim ends by the verdict of its run and no other; a chat can't be claimed.
func TestAdopt(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	ctx, h, host := t.Context(), newHouse(t, db), db.Host()
	id := driven(t, db, h)
	check(t, claim(ctx, db, id, "r1", ""))
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
	check(t, claim(ctx, db, id, "r2", "")) // a thread that has ended runs again
	got := must(host.Thread(ctx, id))(t)
	if got.ClaimedRun != "r2" {
		t.Errorf("got %+v", got)
	}
	chat := must(host.CreateThread(ctx, rows.NewThread{House: h.id}))(t)
	is(t, claim(ctx, db, chat.ID, "r1", ""), rows.ErrInvalid)
	is(t, claim(ctx, db, "none", "r1", ""), rows.ErrAbsent)
}

// A thread's sandbox: made once by many callers, shared, live, dead, replaced for all of its threads at once.
func TestResolve(t *testing.T) {
	db, _ := open(t, control.Config{Connections: 8})
	ctx, h, host := t.Context(), newHouse(t, db), db.Host()
	first := driven(t, db, h)
	atOnce := func(threads ...string) (made rows.BoxTurn, sandboxes []string) {
		t.Helper()
		var all sync.WaitGroup
		var mu sync.Mutex
		for _, id := range threads {
			all.Go(func() {
				turn, err := resolve(ctx, db, id, "")
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				sandboxes = append(sandboxes, turn.Row.ID)
				if turn.Make && made.Make {
					t.Error("two sandboxes are made")
				} else if turn.Make {
					made = turn
				}
			})
		}
		all.Wait()
		slices.Sort(sandboxes)
		return made, slices.Compact(sandboxes)
	}
	made, ids := atOnce(slices.Repeat([]string{first}, 16)...)
	if !made.Make || len(ids) != 1 || made.Row.Status != rows.BoxPending || len(made.Notices) > 0 ||
		!made.Row.Ephemeral || made.Row.Environment != h.env {
		t.Fatalf("got %+v, %v", made, ids)
	}
	box, in := made.Row.ID, boxes(db)
	check(t, errors.Join(in.Ready(ctx, box, readyBy, "machine-1"), in.Ready(ctx, box, readyBy, "machine-1")))
	second := must(host.CreateThread(ctx, rows.NewThread{House: h.id, Sandbox: box, Agent: h.bot}))(t).ID
	check(t, claim(ctx, db, first, "r1", ""))
	for range 2 {
		check(t, in.Gone(ctx, box))
	}
	check(t, in.Ended(ctx, first, "r1", rows.ThreadFailed))

	made, ids = atOnce(append(slices.Repeat([]string{first}, 8), slices.Repeat([]string{second}, 8)...)...)
	if !made.Make || len(ids) != 1 || ids[0] == box {
		t.Fatalf("got %+v, %v", made, ids)
	}
	threads := []string{first, second}
	slices.Sort(threads)
	var want []rows.Notice
	for _, id := range threads {
		want = append(want, rows.Notice{Thread: id, Row: ids[0], From: box})
	}
	if !slices.Equal(made.Notices, want) {
		t.Errorf("got %+v", made.Notices)
	}
	check(t, claim(ctx, db, second, "r2", ""))
}

// A sandbox that is pending for too long is dead, and its machine is to be deleted should it come; a thread without any
// environment has no sandbox.
func TestExpire(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	ctx, h, host := t.Context(), newHouse(t, db), db.Host()
	id := driven(t, db, h)
	box := must(resolve(ctx, db, id, ""))(t).Row.ID
	check(t, boxes(db).Expire(ctx))
	if all := must(boxes(db).Boxes(ctx, nil))(t); len(all) != 1 || all[0].Status != rows.BoxPending {
		t.Errorf("got %v", all)
	}
	_ = must(connect(t, url).Exec(ctx, `update sandboxes set pending_until = now() - interval '1 second'`))(t)
	check(t, boxes(db).Expire(ctx))
	is(t, boxes(db).Ready(ctx, box, readyBy, "late"), lease.ErrReleased)
	is(t, boxes(db).Ready(ctx, "none", readyBy, "late"), lease.ErrReleased)
	if all := must(boxes(db).Boxes(ctx, nil))(t); len(all) != 1 || all[0].ID != box ||
		all[0].Status != rows.BoxDead || all[0].DestroyedAt != nil {
		t.Errorf("got %v", all)
	}
	check(t, boxes(db).Gone(ctx, box))
	if all := must(boxes(db).Boxes(ctx, nil))(t); len(all) != 0 {
		t.Errorf("got %v", all)
	}
	if turn := must(resolve(ctx, db, id, ""))(t); len(turn.Notices) != 1 || turn.Notices[0].From != box {
		t.Errorf("got %+v", turn)
	}
	if all := must(boxes(db).Boxes(ctx, nil))(t); len(all) != 1 {
		t.Errorf("got %v", all)
	}
	bare := must(host.CreateThread(ctx, rows.NewThread{House: h.id, Agent: h.bot}))(t).ID
	_, err := resolve(ctx, db, bare, "")
	is(t, err, rows.ErrNoRecipe)
	check(t, host.SetDefaultEnvironment(ctx, h.id, h.env))
	must(resolve(ctx, db, bare, ""))(t)
}

// The environment of a thread's next box is the one that is wanted, else the dead box's, the thread's, its house's; a
// box that is not dead has its own. Place and Obtain agree.
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
		box := must(resolve(ctx, db, id, environment))(t).Row.ID
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
		turn := must(resolve(ctx, db, tt.thread, tt.wanted))(t)
		if turn.Row.Environment != tt.want || turn.Make == tt.live {
			t.Errorf("%s: Obtain takes %+v", tt.name, turn)
		}
	}
	_, err := host.Place(ctx, "none", "")
	is(t, err, rows.ErrAbsent)
}

// A house may limit the hours of its boxes: a run's place has them, with the age of its box.
func TestPlaceHours(t *testing.T) {
	db, url := open(t, control.Config{})
	ctx, h, c := t.Context(), newHouse(t, db), connect(t, url)
	id := driven(t, db, h)
	box := must(resolve(ctx, db, id, ""))(t).Row.ID
	_ = must(c.Exec(ctx, `update sandboxes set created_at = now() - interval '30 hours' where id = $1`, box))(t)
	place := func() (hours int, left time.Duration, limited bool) {
		p := must(db.Host().Place(ctx, id, ""))(t)
		left, limited = p.Left()
		return p.BoxHours, left.Round(time.Hour), limited
	}
	set := func(n int64) { check(t, db.As(h.owner).ChangeHouse(ctx, h.id, rows.HouseChange{BoxHours: &n})) }
	want := func(what string, wantHours int, wantLeft time.Duration) {
		t.Helper()
		hours, left, limited := place()
		if hours != wantHours || limited && left != wantLeft || limited != (hours > 0) {
			t.Errorf("%s: %d hours, %v left (%v)", what, hours, left, limited)
		}
	}
	want("without a limit", 0, 0)
	set(100)
	want("limited", 100, 70*time.Hour)
	set(24)
	want("too old", 24, -6*time.Hour)
	check(t, boxes(db).Gone(ctx, box))
	want("without a live box", 24, 24*time.Hour)
	set(0)
	want("without a limit again", 0, 0)
	for _, config := range []string{`"many"`, `null`, `-1`} {
		_ = must(c.Exec(ctx, `update houses set config = jsonb_build_object('boxHours', $2::jsonb) where id = $1`,
			h.id, config))(t)
		want("unreadable: "+config, 1, time.Hour)
	}
}
