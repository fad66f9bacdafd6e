package fakerows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
)

// Host is rows under test.
type Host struct {
	Rows interface {
		resolve.Rows
		reconcile.Rows
	}
	Provider string
	// Thread makes a driven thread on a box; "" for none.
	Thread func(t *testing.T, box string) string
	// Pass lets time pass for the rows.
	Pass func(t *testing.T, d time.Duration)
}

// Conform holds rows to what launches, commands and reconcilers rely on.
func Conform(t *testing.T, run func(t *testing.T, test func(*testing.T, Host))) {
	for name, test := range map[string]func(*testing.T, Host){
		"obtain": obtains, "makers": makers, "lease": leases, "condemn": condemns, "doubt": doubts, "expire": expires,
		"follow": follows, "notices": noticed,
	} {
		t.Run(name, func(t *testing.T) { run(t, test) })
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// order returns a run's request for its thread's box.
func order(thread, run string, call int, known ...string) rows.BoxOrder {
	hold := lease.OfRun(thread, run)
	return rows.BoxOrder{
		Thread: thread, Ephemeral: true, Hold: hold, Maker: fmt.Sprint(hold.Holder, "#", call), Claim: true,
		Known: known,
	}
}

func (h Host) obtain(t *testing.T, o rows.BoxOrder) rows.BoxTurn {
	t.Helper()
	turn, err := h.Rows.Obtain(t.Context(), o)
	check(t, err)
	return turn
}

// live makes a thread with a live box, which its run r1 holds.
func (h Host) live(t *testing.T) (thread, box string) {
	t.Helper()
	thread = h.Thread(t, "")
	o := order(thread, "r1", 1)
	turn := h.obtain(t, o)
	check(t, h.Rows.Ready(t.Context(), turn.Row.ID, o.Maker, "m-"+thread))
	return thread, turn.Row.ID
}

func obtains(t *testing.T, h Host) {
	ctx, id := t.Context(), h.Thread(t, "")
	turn := h.obtain(t, order(id, "r1", 1))
	if !turn.Make || turn.Taken || turn.Row.Status != rows.BoxPending || !turn.Row.Ephemeral ||
		turn.Row.Provider != h.Provider {
		t.Errorf("got %+v", turn)
	}
	run, _, err := h.Rows.Claimed(ctx, id)
	if check(t, err); run != "r1" {
		t.Errorf("claimed by %q", run)
	}
	var claimed *rows.ClaimedError
	if _, err := h.Rows.Obtain(ctx, order(id, "r2", 1)); !errors.As(err, &claimed) || claimed.Run != "r1" {
		t.Errorf("got %v", err)
	}
	if other := h.obtain(t, order(id, "r2", 1, "r1")); other.Make || other.Row.ID != turn.Row.ID {
		t.Errorf("got %+v", other)
	}
	h.Pass(t, rows.MakeTimeout-time.Second)
	check(t, h.Rows.Renew(ctx, turn.Row.ID, order(id, "r1", 1).Maker, "m1"))
	h.Pass(t, rows.MakeTimeout-time.Second)
	if other := h.obtain(t, order(id, "r2", 1, "r1")); other.Make {
		t.Errorf("a maker that renews has lost the box: %+v", other)
	}
	h.Pass(t, 2*time.Second)
	other := h.obtain(t, order(id, "r2", 1, "r1"))
	if !other.Make || other.Row.ID == turn.Row.ID || len(other.Notices) != 1 || other.Notices[0].From != turn.Row.ID {
		t.Errorf("got %+v", other)
	}
	row, there, err := h.Rows.Row(ctx, turn.Row.ID)
	if check(t, err); !there || !row.Dead || row.Used || !row.Condemned.IsZero() {
		t.Errorf("got %+v", row)
	}
	is(t, h.Rows.Ready(ctx, turn.Row.ID, order(id, "r1", 1).Maker, "m1"), lease.ErrReleased)
	h.Pass(t, rows.ClaimTimeout+time.Second)
	h.obtain(t, order(id, "r3", 1)) // a claim that the log never had
}

func makers(t *testing.T, h Host) {
	ctx, id := t.Context(), h.Thread(t, "")
	first, second := order(id, "r1", 1), order(id, "r1", 2)
	row := h.obtain(t, first).Row.ID
	check(t, h.Rows.Renew(ctx, row, first.Maker, "m1"))
	if turn := h.obtain(t, second); !turn.Make || !turn.Taken || turn.Row.ID != row || turn.Row.Ref != "" {
		t.Errorf("got %+v", turn)
	}
	is(t, h.Rows.Renew(ctx, row, first.Maker, "m1"), lease.ErrReleased)
	is(t, h.Rows.Ready(ctx, row, first.Maker, "m1"), lease.ErrReleased)
	now, mine, err := h.Rows.GiveUp(ctx, row, first.Maker)
	if check(t, err); mine || now.Status != rows.BoxPending {
		t.Errorf("given up by the first: %+v, %t", now, mine)
	}
	for range 2 {
		check(t, h.Rows.Ready(ctx, row, second.Maker, "m2"))
	}
	now, mine, err = h.Rows.GiveUp(ctx, row, second.Maker)
	if check(t, err); !mine || now.Status != rows.BoxLive || now.Ref != "m2" {
		t.Errorf("given up once it is live: %+v, %t", now, mine)
	}
	at, err := h.Rows.BoxAt(ctx, h.Provider, "m2")
	if check(t, err); at != row {
		t.Errorf("m2 is the machine of %q", at)
	}
}

func leases(t *testing.T, h Host) {
	ctx := t.Context()
	id, box := h.live(t)
	l := h.Rows.Lease(box)
	a, b := rows.Hold{Holder: "a", TTL: lease.TTL}, rows.Hold{Holder: "b", TTL: lease.TTL}
	try := func(hold rows.Hold, want bool) {
		t.Helper()
		got, err := l.Try(ctx, hold)
		if check(t, err); got != want {
			t.Errorf("%s: %t", hold.Holder, got)
		}
	}
	try(a, true)
	try(b, false)
	h.Pass(t, lease.TTL+time.Second)
	try(b, true)
	release := func(what string, seen []rows.Hold, judged []string, want bool) {
		t.Helper()
		done, err := h.Rows.Release(ctx, box, seen, judged)
		if check(t, err); done != want {
			t.Errorf("%s: %t", what, done)
		}
	}
	before, err := l.Read(ctx)
	check(t, err)
	release("a thread runs that was not looked at", before.Holds, nil, false)
	check(t, l.Hold(ctx, b)) // it is renewed
	release("a holder has come", before.Holds, []string{id}, false)
	now, err := l.Read(ctx)
	check(t, err)
	release("nothing has changed", now.Holds, []string{id}, true)
	release("again", nil, nil, true)
	is(t, l.Hold(ctx, a), lease.ErrReleased)
	s, err := l.Read(ctx)
	if check(t, err); !s.Released || len(s.Holds) > 0 {
		t.Errorf("got %+v", s)
	}
	if s, err := h.Rows.Lease("none").Read(ctx); err != nil || !s.Released {
		t.Errorf("a box without a row: %+v, %v", s, err)
	}
	row, _, err := h.Rows.Row(ctx, box)
	if check(t, err); !row.Dead || !row.Used || !row.Condemned.IsZero() || len(row.Threads) != 1 ||
		row.Threads[0].ID != id {
		t.Errorf("got %+v", row)
	}
}

func condemns(t *testing.T, h Host) {
	ctx := t.Context()
	first, box := h.live(t)
	second := h.Thread(t, box)
	seen := func() []rows.Hold {
		s, err := h.Rows.Lease(box).Read(ctx)
		check(t, err)
		return s.Holds
	}
	condemn := func(what string, holds []rows.Hold, judged []string, want bool) {
		t.Helper()
		done, err := h.Rows.Condemn(ctx, box, holds, judged)
		if check(t, err); done != want {
			t.Errorf("%s: %t", what, done)
		}
	}
	before := seen()
	condemn("a thread runs that was not looked at", before, []string{second}, false)
	check(t, h.Rows.Lease(box).Hold(ctx, lease.Opening(second)))
	condemn("a holder has come", before, []string{first, second}, false)
	check(t, h.Rows.Doubt(ctx, box, "its provider does not answer"))
	condemn("nothing has changed", seen(), []string{first, second}, true)
	condemn("again", nil, nil, true)
	if rows, err := h.Rows.Doubted(ctx); err != nil || len(rows) > 0 {
		t.Errorf("a dead box is doubted: %v, %v", rows, err)
	}
	listed := func(want int, named ...string) {
		t.Helper()
		found, err := h.Rows.Boxes(ctx, named)
		check(t, err)
		if n := len(slices.DeleteFunc(found, func(r rows.Box) bool { return r.ID != box })); n != want {
			t.Errorf("%d rows", n)
		}
	}
	listed(1)
	h.obtain(t, order(first, "r2", 1, "r1")) // its threads get another one
	row, there, err := h.Rows.Row(ctx, box)
	if check(t, err); !there || !row.Dead || row.Condemned.IsZero() || len(row.Threads) != 2 ||
		row.Threads[0].Status == rows.ThreadRunning {
		t.Errorf("got %+v", row)
	}
	for range 2 {
		check(t, h.Rows.Gone(ctx, box))
	}
	listed(0)
	listed(1, box)
	if row, there, err := h.Rows.Row(ctx, "none"); there || err != nil {
		t.Errorf("got %+v, %v", row, err)
	}
	check(t, h.Rows.Gone(ctx, "none"))
}

func doubts(t *testing.T, h Host) {
	ctx := t.Context()
	_, box := h.live(t)
	doubted := func() (ids []string) {
		rows, err := h.Rows.Doubted(ctx)
		check(t, err)
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		return ids
	}
	for range 2 {
		check(t, h.Rows.Doubt(ctx, box, "not found"))
	}
	if got := doubted(); !slices.Equal(got, []string{box}) {
		t.Errorf("got %v", got)
	}
	for range 2 {
		check(t, h.Rows.Trust(ctx, box))
	}
	if got := doubted(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
	check(t, h.Rows.Doubt(ctx, "none", "not found"))
}

func expires(t *testing.T, h Host) {
	ctx := t.Context()
	_, box := h.live(t)
	l := h.Rows.Lease(box)
	check(t, l.Hold(ctx, rows.Hold{Holder: "a", TTL: time.Minute}))
	check(t, l.Hold(ctx, rows.Hold{Holder: "b", TTL: time.Hour}))
	pending := h.obtain(t, order(h.Thread(t, ""), "r1", 1)).Row.ID
	h.Pass(t, 2*time.Minute)
	check(t, h.Rows.Expire(ctx))
	s, err := l.Read(ctx)
	check(t, err)
	var holders []string
	for _, hold := range s.Holds {
		holders = append(holders, hold.Holder)
	}
	if len(holders) != 2 || holders[1] != "b" {
		t.Errorf("held by %v", holders)
	}
	row, _, err := h.Rows.Row(ctx, pending)
	if check(t, err); !row.Dead || !row.Condemned.IsZero() {
		t.Errorf("got %+v", row)
	}
}

func follows(t *testing.T, h Host) {
	ctx := t.Context()
	id, box := h.live(t)
	seen, running, err := h.Rows.Running(ctx, id)
	if check(t, err); !running || seen.Run != "r1" {
		t.Errorf("got %+v, %t", seen, running)
	}
	row, _, err := h.Rows.Row(ctx, box)
	want := []rows.BoxThread{{ID: id, Status: rows.ThreadRunning, Run: "r1"}}
	if check(t, err); !slices.Equal(row.Threads, want) {
		t.Errorf("got %+v", row)
	}
	if stale, err := h.Rows.Stale(ctx); err != nil || slices.Contains(stale, id) {
		t.Errorf("got %v, %v", stale, err)
	}
	h.Pass(t, 2*rows.ClaimTimeout)
	if stale, err := h.Rows.Stale(ctx); err != nil || !slices.Contains(stale, id) {
		t.Errorf("got %v, %v", stale, err)
	}
	seen, _, err = h.Rows.Running(ctx, id)
	check(t, err)
	check(t, h.Rows.Follow(ctx, id, seen, "failed"))
	if _, running, err := h.Rows.Running(ctx, id); err != nil || running {
		t.Errorf("running %t, %v", running, err)
	}
	check(t, h.Rows.Lease(box).Hold(ctx, lease.OfCommand(id, "x1")))
	if ids, err := h.Rows.Commands(ctx, id); err != nil || !slices.Equal(ids, []string{"x1"}) {
		t.Errorf("got %v, %v", ids, err)
	}
	check(t, h.Rows.Unhold(ctx, id, []string{"r1", "x1"}))
	if s, err := h.Rows.Lease(box).Read(ctx); err != nil || len(s.Holds) > 0 {
		t.Errorf("got %+v, %v", s, err)
	}
	other := h.Thread(t, "")
	h.obtain(t, order(other, "r1", 1))
	seen, _, err = h.Rows.Running(ctx, other)
	check(t, err)
	check(t, h.Rows.Follow(ctx, other, seen, "idle"))
	if run, _, err := h.Rows.Claimed(context.WithoutCancel(ctx), other); err != nil || run != "" {
		t.Errorf("claimed by %q, %v", run, err)
	}
}

func noticed(t *testing.T, h Host) {
	ctx := t.Context()
	first, box := h.live(t)
	second := h.Thread(t, box)
	check(t, h.Rows.Gone(ctx, box))
	turn := h.obtain(t, order(first, "r2", 1, "r1"))
	if len(turn.Notices) != 2 {
		t.Errorf("got %+v", turn.Notices)
	}
	check(t, h.Rows.Noted(ctx, rows.Notice{Row: turn.Row.ID, Thread: first}))
	if other := h.obtain(t, order(second, "r3", 1)); other.Make || len(other.Notices) != 1 {
		t.Errorf("got %+v", other)
	}
	// The new one dies before the second thread has the signal of it.
	check(t, h.Rows.Gone(ctx, turn.Row.ID))
	last := h.obtain(t, order(first, "r4", 1, "r1", "r2"))
	from := map[string]string{}
	for _, n := range last.Notices {
		from[n.Thread] = n.From
	}
	if from[first] != turn.Row.ID || from[second] != box {
		t.Errorf("got %+v", last.Notices)
	}
	all, err := h.Rows.Notices(ctx)
	if check(t, err); !slices.Contains(all, rows.Notice{Thread: second, Row: last.Row.ID, From: box}) {
		t.Errorf("got %+v", all)
	}
}
