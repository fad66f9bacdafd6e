package control_test

import (
	"cmp"
	"context"
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

func boxes(db *control.DB) control.Boxes {
	return control.Boxes{Open: func(context.Context) (*control.DB, error) { return db, nil }}
}

// order returns a run's request for its thread's box.
func order(thread, run string) rows.BoxOrder {
	return rows.BoxOrder{
		Thread: thread, Ephemeral: true, Hold: lease.OfRun(thread, run), Maker: maker(thread, run, 1), Claim: true,
	}
}

// maker is the nth call for a run.
func maker(thread, run string, n int) string {
	return fmt.Sprintf("%s#%d", lease.OfRun(thread, run).Holder, n)
}

// resolve gets the box of a thread for no run, as the call readyBy.
func resolve(ctx context.Context, db *control.DB, thread, environment string) (rows.BoxTurn, error) {
	return boxes(db).Obtain(ctx, rows.BoxOrder{
		Thread: thread, Environment: environment, Ephemeral: true, Hold: lease.Opening(thread), Maker: readyBy,
	})
}

const readyBy = "test#1"

// claim gives a thread to a run. An environment is needed where the thread has none.
func claim(ctx context.Context, db *control.DB, thread, run, environment string) error {
	o := order(thread, run)
	o.Environment = environment
	_, err := boxes(db).Obtain(ctx, o)
	return err
}

// liveBox makes a thread, and a live box for a run of it.
func liveBox(t testing.TB, db *control.DB, h house) (thread string, row rows.Box) {
	t.Helper()
	in := boxes(db)
	thread = driven(t, db, h)
	turn := must(in.Obtain(t.Context(), order(thread, "r1")))(t)
	check(t, in.Ready(t.Context(), turn.Row.ID, maker(thread, "r1", 1), "machine-"+thread))
	return thread, turn.Row
}

// condemn declares a sandbox dead, with or without holders.
func condemn(ctx context.Context, in control.Boxes, box string) error {
	row, _, err := in.Row(ctx, box)
	var judged []string
	for _, th := range row.Threads {
		judged = append(judged, th.ID)
	}
	s, rerr := in.Lease(box).Read(ctx)
	_, cerr := in.Condemn(ctx, box, s.Holds, judged)
	return errors.Join(err, rerr, cerr)
}

var errNeeded = errors.New("needed")

// release releases a box that has no hold.
func release(ctx context.Context, in control.Boxes, box, thread string) error {
	for {
		s, err := in.Lease(box).Read(ctx)
		if err != nil || len(s.Holds) > 0 {
			return cmp.Or(err, errNeeded)
		}
		if done, err := in.Release(ctx, box, s.Holds, []string{thread}); done || err != nil {
			return err
		}
	}
}

// Holds, and the release that no hold stands against. Afterwards there is no hold.
func TestHolds(t *testing.T) {
	db, url := open(t, control.Config{})
	ctx, h, in := t.Context(), newHouse(t, db), boxes(db)
	thread, row := liveBox(t, db, h)
	l, run := in.Lease(row.ID), lease.OfRun(thread, "r1")
	for range 2 {
		check(t, l.Hold(ctx, run))
	}
	s := must(l.Read(ctx))(t)
	if len(s.Holds) != 1 || s.Holds[0].Holder != run.Holder || s.Holds[0].TTL != 0 || s.Released {
		t.Errorf("got %+v", s)
	}
	is(t, release(ctx, in, row.ID, thread), errNeeded)
	for range 2 {
		check(t, l.Drop(ctx, run.Holder))
	}
	if must(in.Release(ctx, row.ID, nil, nil))(t) {
		t.Error("released although a thread runs that was not looked at")
	}
	for range 2 {
		check(t, release(ctx, in, row.ID, thread))
	}
	is(t, l.Hold(ctx, run), lease.ErrReleased)
	_, err := l.Try(ctx, run)
	is(t, err, lease.ErrReleased)
	if s := must(l.Read(ctx))(t); !s.Released || len(s.Holds) > 0 {
		t.Errorf("got %+v", s)
	}
	var left int
	check(t, connect(t, url).QueryRow(ctx, `select count(*) from sandbox_holds where sandbox_id = $1`, row.ID).Scan(&left))
	if left != 0 {
		t.Errorf("%d holds of a dead sandbox", left)
	}
	if s := must(in.Lease("none").Read(ctx))(t); !s.Released {
		t.Errorf("a sandbox without a row: %+v", s)
	}
}

// A hold with a time keeps others out until it has passed, by the database's clock.
func TestTry(t *testing.T) {
	db, url := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	_, row := liveBox(t, db, h)
	l := boxes(db).Lease(row.ID)
	a, b := rows.Hold{Holder: "a", TTL: lease.TTL}, rows.Hold{Holder: "b", TTL: lease.TTL}
	try := func(h rows.Hold, want bool) {
		t.Helper()
		if got := must(l.Try(ctx, h))(t); got != want {
			t.Errorf("%s: %t", h.Holder, got)
		}
	}
	try(a, true)
	try(b, false)
	try(a, true)
	_ = must(connect(t, url).Exec(ctx, `update sandbox_holds set at = at - interval '1 hour',
		expires_at = expires_at - interval '1 hour' where sandbox_id = $1 and holder = 'a'`, row.ID))(t)
	try(b, true)
	try(a, false)
}

// releases races a hold against the release of a box, and returns how often each was first.
func releases(t *testing.T, rounds int) (held, released int) {
	db, _ := open(t, control.Config{Connections: 8})
	ctx, h, in := t.Context(), newHouse(t, db), boxes(db)
	for i := range rounds {
		thread, row := liveBox(t, db, h)
		check(t, in.Ended(ctx, thread, "r1", rows.ThreadCompleted))
		l := in.Lease(row.ID)
		check(t, l.Drop(ctx, lease.OfRun(thread, "r1").Holder))
		start := make(chan struct{})
		var both sync.WaitGroup
		var holdErr, releaseErr error
		both.Go(func() { <-start; holdErr = l.Hold(ctx, lease.OfRun(thread, "r2")) })
		both.Go(func() { <-start; releaseErr = release(ctx, in, row.ID, thread) })
		close(start)
		both.Wait()
		switch {
		case holdErr == nil && errors.Is(releaseErr, errNeeded):
			held++
		case errors.Is(holdErr, lease.ErrReleased) && releaseErr == nil:
			released++
		default:
			t.Fatalf("round %d: the hold got %v, the release %v", i, holdErr, releaseErr)
		}
		if s := must(l.Read(ctx))(t); s.Released == (len(s.Holds) > 0) {
			t.Fatalf("round %d: released %t, holds %v", i, s.Released, s.Holds)
		}
	}
	return held, released
}

// A hold and a release at the same time: one of the two happens.
func TestHoldAgainstRelease(t *testing.T) { releases(t, 20) }

// The same, 1,000 times.
func TestFullHoldAgainstRelease(t *testing.T) {
	held, released := releases(t, 1000)
	t.Logf("held %d times, released %d times", held, released)
	if held == 0 || released == 0 {
		t.Errorf("no race: held %d times, released %d times", held, released)
	}
}

// A launch obtains the box of its thread: claim, row and hold at once, or nothing.
func TestObtain(t *testing.T) {
	db, url := open(t, control.Config{})
	ctx, h, in := t.Context(), newHouse(t, db), boxes(db)
	id := driven(t, db, h)
	turn := must(in.Obtain(ctx, order(id, "r1")))(t)
	if !turn.Make || turn.Row.Status != rows.BoxPending || len(turn.Notices) > 0 || !turn.Row.Ephemeral {
		t.Errorf("got %+v", turn)
	}
	if again := must(in.Obtain(ctx, order(id, "r1")))(t); !again.Make || again.Row.ID != turn.Row.ID {
		t.Errorf("the answer was lost, and the repeat got %+v", again)
	}
	run, since, err := in.Claimed(ctx, id)
	if check(t, err); run != "r1" || since > time.Hour {
		t.Errorf("claimed by %s for %s", run, since)
	}
	var claimed *rows.ClaimedError
	if _, err := in.Obtain(ctx, order(id, "r2")); !errors.As(err, &claimed) || claimed.Run != "r1" {
		t.Errorf("got %v", err)
	}
	if s := must(in.Lease(turn.Row.ID).Read(ctx))(t); len(s.Holds) != 1 {
		t.Errorf("holds: %+v", s.Holds)
	}
	// The log knows r1, so it has ended: the row is behind.
	o := order(id, "r2")
	o.Known = []string{"r1"}
	if turn := must(in.Obtain(ctx, o))(t); turn.Make || turn.Row.Status != rows.BoxPending {
		t.Errorf("got %+v", turn) // r1's maker makes it still
	}
	// Its maker died.
	c := connect(t, url)
	_ = must(c.Exec(ctx, `update sandboxes set pending_until = now() - interval '1 s' where id = $1`, turn.Row.ID))(t)
	taken := must(in.Obtain(ctx, o))(t)
	if !taken.Make || len(taken.Notices) != 1 || taken.Notices[0].From != turn.Row.ID {
		t.Errorf("got %+v", taken)
	}
	late := maker(id, "r1", 1)
	is(t, in.Renew(ctx, turn.Row.ID, late, "late"), lease.ErrReleased)
	is(t, in.Ready(ctx, turn.Row.ID, late, "late"), lease.ErrReleased)
	// A claim that the log never had is left after a minute.
	_ = must(c.Exec(ctx, `update threads set claimed_at = now() - interval '2 min' where id = $1`, id))(t)
	must(in.Obtain(ctx, order(id, "r3")))(t)
	chat := must(db.Host().CreateThread(ctx, rows.NewThread{House: h.id, Environment: h.env}))(t).ID
	_, err = in.Obtain(ctx, order(chat, "r1"))
	is(t, err, rows.ErrInvalid)
	plain := order(chat, "e1") // one command in a chat's box
	plain.Claim, plain.Hold.TTL = false, time.Minute
	must(in.Obtain(ctx, plain))(t)
}

// Of many launches of many threads that share a dead box one makes the new one, and all get it.
func TestObtainShared(t *testing.T) {
	db, _ := open(t, control.Config{Connections: 8})
	ctx, h, in := t.Context(), newHouse(t, db), boxes(db)
	first, row := liveBox(t, db, h)
	threads := []string{first}
	for range 7 {
		n := rows.NewThread{House: h.id, Sandbox: row.ID, Agent: h.bot}
		threads = append(threads, must(db.Host().CreateThread(ctx, n))(t).ID)
	}
	check(t, in.Gone(ctx, row.ID))
	turns := make([]rows.BoxTurn, len(threads))
	var all sync.WaitGroup
	for i, id := range threads {
		all.Go(func() {
			o := order(id, fmt.Sprint("r", i+2))
			o.Known = []string{"r1"}
			var err error
			if turns[i], err = in.Obtain(ctx, o); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	made := 0
	for _, turn := range turns {
		if turn.Row.ID != turns[0].Row.ID || turn.Row.ID == row.ID {
			t.Errorf("got %+v", turn)
		}
		if turn.Make {
			if made++; len(turn.Notices) != len(threads) || turn.Notices[0].From != row.ID {
				t.Errorf("got %+v", turn)
			}
		}
	}
	if made != 1 {
		t.Errorf("%d made it", made)
	}
	if s := must(in.Lease(turns[0].Row.ID).Read(ctx))(t); len(s.Holds) != len(threads) {
		t.Errorf("%d hold it", len(s.Holds))
	}
}

// What a reconciler does to rows: they follow the log, unless they have changed since; claims and holds end.
func TestSettleRows(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	ctx, h, in := t.Context(), newHouse(t, db), boxes(db)
	id, row := liveBox(t, db, h)
	seen, running, err := in.Running(ctx, id)
	if check(t, err); !running || seen.Run != "r1" {
		t.Errorf("got %+v, %t", seen, running)
	}
	must(db.Host().ChangeThread(ctx, id, rows.ThreadChange{Name: new(string)}))(t)
	check(t, in.Follow(ctx, id, seen, rows.ThreadFailed))
	if th := must(db.Host().Thread(ctx, id))(t); th.Status != rows.ThreadRunning {
		t.Errorf("a row that had changed is %s", th.Status)
	}
	seen, _, err = in.Running(ctx, id)
	check(t, errors.Join(err, in.Follow(ctx, id, seen, rows.ThreadFailed)))
	if th := must(db.Host().Thread(ctx, id))(t); th.Status != rows.ThreadFailed || th.ClaimedRun != "" {
		t.Errorf("got %+v", th)
	}
	c := connect(t, url)
	if stale := must(in.Stale(ctx))(t); len(stale) != 0 {
		t.Errorf("got %v", stale)
	}
	_ = must(c.Exec(ctx, `update sandbox_holds set at = now() - interval '2 min' where thread_id = $1`, id))(t)
	if stale := must(in.Stale(ctx))(t); len(stale) != 1 || stale[0] != id {
		t.Errorf("of a run that has ended: got %v", stale)
	}
	check(t, in.Unhold(ctx, id, []string{"r1"}))
	if s := must(in.Lease(row.ID).Read(ctx))(t); len(s.Holds) != 0 {
		t.Errorf("got %+v", s.Holds)
	}
	if found := must(in.BoxAt(ctx, row.Provider, "machine-"+id))(t); found != row.ID {
		t.Errorf("got %q", found)
	}
	if found := must(in.BoxAt(ctx, row.Provider, "none"))(t); found != "" {
		t.Errorf("got %q", found)
	}
	other := driven(t, db, h)
	must(in.Obtain(ctx, order(other, "r1")))(t)
	_ = must(c.Exec(ctx, `update threads set claimed_at = now() - interval '2 min' where id = $1`, other))(t)
	if stale := must(in.Stale(ctx))(t); len(stale) != 1 || stale[0] != other {
		t.Errorf("got %v", stale)
	}
	seen, _, err = in.Running(ctx, other)
	check(t, errors.Join(err, in.Follow(ctx, other, seen, rows.ThreadIdle)))
	if th := must(db.Host().Thread(ctx, other))(t); th.Status != rows.ThreadIdle {
		t.Errorf("got %+v", th)
	}
	_ = must(c.Exec(ctx, `update sandboxes set pending_until = now() - interval '1 s' where status = 'pending'`))(t)
	check(t, in.Gone(ctx, row.ID))
	check(t, in.Expire(ctx))
	all := must(in.Boxes(ctx, nil))(t)
	if len(all) != 1 || all[0].Status != rows.BoxDead || all[0].DestroyedAt != nil {
		t.Errorf("got %+v", all)
	}
	if all := must(in.Boxes(ctx, []string{row.ID}))(t); len(all) != 2 {
		t.Errorf("got %+v", all)
	}
}

// Two hosts make the box of one run: the first has lost the run's lease. The latest one makes it, and what the other
// reports is refused. What the other gives up is not the box.
func TestTwoMakers(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h, in := t.Context(), newHouse(t, db), boxes(db)
	id := driven(t, db, h)
	first, second := maker(id, "r1", 1), maker(id, "r1", 2)
	turn := must(in.Obtain(ctx, order(id, "r1")))(t)
	row := turn.Row.ID
	check(t, in.Renew(ctx, row, first, "machine1"))
	o := order(id, "r1")
	o.Maker = second
	again := must(in.Obtain(ctx, o))(t)
	if !again.Make || !again.Taken || turn.Taken || again.Row.ID != row {
		t.Errorf("got %+v, then %+v", turn, again)
	}
	for _, report := range []func(context.Context, string, string, string) error{in.Renew, in.Ready} {
		is(t, report(ctx, row, first, "machine1"), lease.ErrReleased)
	}
	now, mine, err := in.GiveUp(ctx, row, first)
	if check(t, err); mine || now.Status != rows.BoxPending {
		t.Errorf("given up by the first: %+v, %t", now, mine)
	}
	check(t, in.Renew(ctx, row, second, "machine2"))
	check(t, in.Ready(ctx, row, second, "machine2"))
	now, mine, err = in.GiveUp(ctx, row, second) // its answer was lost
	if check(t, err); !mine || now.Status != rows.BoxLive || now.Ref != "machine2" {
		t.Errorf("given up once it is live: %+v, %t", now, mine)
	}
	if turn := must(in.Obtain(ctx, order(id, "r1")))(t); turn.Make || turn.Row.Ref != "machine2" {
		t.Errorf("got %+v", turn)
	}
	other := driven(t, db, h)
	turn = must(in.Obtain(ctx, order(other, "r1")))(t)
	now, mine, err = in.GiveUp(ctx, turn.Row.ID, maker(other, "r1", 1))
	if check(t, err); !mine || now.Status != rows.BoxDead {
		t.Errorf("given up: %+v, %t", now, mine)
	}
	if s := must(in.Lease(turn.Row.ID).Read(ctx))(t); !s.Released {
		t.Errorf("the lease of a sandbox that was given up: %+v", s)
	}
	now, mine, err = in.GiveUp(ctx, "none", first)
	if check(t, err); mine || now.ID != "" {
		t.Errorf("a sandbox without a row: %+v, %t", now, mine)
	}
}

// The threads of a dead box get the signal of the new one from the next caller, until the rows have that they got it.
func TestNotices(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h, in := t.Context(), newHouse(t, db), boxes(db)
	first, dead := liveBox(t, db, h)
	n := rows.NewThread{House: h.id, Sandbox: dead.ID, Agent: h.bot}
	second := must(db.Host().CreateThread(ctx, n))(t).ID
	check(t, in.Gone(ctx, dead.ID))
	again := func(thread, run string) rows.BoxTurn {
		t.Helper()
		o := order(thread, run)
		o.Known = []string{"r1"}
		turn := must(in.Obtain(ctx, o))(t)
		for _, n := range turn.Notices {
			if n.From != dead.ID || n.Row != turn.Row.ID {
				t.Errorf("got %+v", turn)
			}
		}
		return turn
	}
	turn := again(first, "r2")
	if len(turn.Notices) != 2 { // and the answer is lost
		t.Errorf("got %+v", turn)
	}
	if other := again(second, "r3"); other.Make || len(other.Notices) != 2 {
		t.Errorf("got %+v", other)
	}
	check(t, in.Noted(ctx, rows.Notice{Row: turn.Row.ID, Thread: first}))
	if all := must(in.Notices(ctx))(t); !slices.Contains(all, rows.Notice{
		Thread: second, Row: turn.Row.ID, From: dead.ID,
	}) || slices.ContainsFunc(all, func(n rows.Notice) bool { return n.Thread == first }) {
		t.Errorf("left: %+v", all)
	}
	if turn := again(first, "r2"); len(turn.Notices) != 1 || turn.Notices[0].Thread != second {
		t.Errorf("got %+v", turn)
	}
	// The new one dies before the second thread has the signal of it.
	check(t, in.Gone(ctx, turn.Row.ID))
	o := order(first, "r4")
	o.Known = []string{"r1", "r2", "r3"}
	last := must(in.Obtain(ctx, o))(t)
	want := []rows.Notice{{Thread: first, Row: last.Row.ID, From: turn.Row.ID}, {Thread: second, Row: last.Row.ID, From: dead.ID}}
	slices.SortFunc(want, func(a, b rows.Notice) int { return cmp.Compare(a.Thread, b.Thread) })
	if !slices.Equal(last.Notices, want) {
		t.Errorf("got %+v, want %+v", last.Notices, want)
	}
	for range 2 {
		for _, id := range []string{first, second} {
			check(t, in.Noted(ctx, rows.Notice{Row: last.Row.ID, Thread: id}))
		}
	}
	if turn := again(first, "r4"); len(turn.Notices) != 0 {
		t.Errorf("got %+v", turn)
	}
	if all := must(in.Notices(ctx))(t); slices.ContainsFunc(all, func(n rows.Notice) bool {
		return n.Thread == first || n.Thread == second
	}) {
		t.Errorf("left: %+v", all)
	}
}
