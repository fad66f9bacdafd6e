package control_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/rows"
)

// The list of sandboxes has the threads on each, those that run first, and the holds that have not expired.
func TestUsedSandboxes(t *testing.T) {
	db, url := open(t, control.Config{})
	ctx, host, h, in := t.Context(), db.Host(), newHouse(t, db), boxes(db)
	first, row := liveBox(t, db, h)
	var others []string
	for range 2 {
		n := rows.NewThread{House: h.id, Agent: h.bot, Sandbox: row.ID}
		others = append(others, must(host.CreateThread(ctx, n))(t).ID)
	}
	check(t, in.Lease(row.ID).Hold(ctx, rows.Hold{Holder: "opens:1", TTL: lease.TTL}))
	check(t, in.Lease(row.ID).Hold(ctx, rows.Hold{Holder: "opens:2", TTL: lease.TTL}))
	_ = must(connect(t, url).Exec(ctx, `update sandbox_holds set expires_at = now() - interval '1 second'
		where sandbox_id = $1 and holder = 'opens:1'`, row.ID))(t)
	all := must(host.UsedSandboxes(ctx, h.id, nil))(t)
	if len(all) != 1 {
		t.Fatalf("got %+v", all)
	}
	b := all[0]
	if b.ID != row.ID || b.HouseName != "a house" || b.EnvironmentName != "base" || b.ThreadCount != 3 {
		t.Errorf("got %+v", b)
	}
	want := []rows.BoxThread{
		{ID: first, Status: "running"}, {ID: others[1], Status: "idle"}, {ID: others[0], Status: "idle"},
	}
	if diff := cmp.Diff(want, b.Threads); diff != "" {
		t.Errorf("its threads: %s", diff)
	}
	var holders []string
	for _, hold := range b.Holds {
		holders = append(holders, fmt.Sprint(hold.Holder, " ", hold.ThreadID, " ", hold.RunID, " ", hold.TTL))
	}
	run := lease.OfRun(first, "r1")
	if want := []string{run.Holder + " " + first + " r1 0s", "opens:2   10m0s"}; !slices.Equal(holders, want) {
		t.Errorf("its holds are %q, want %q", holders, want)
	}
}

// A list has the sandboxes of its house that may have a machine, and those that are named.
func TestUsedSandboxesOfHouses(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, host, in := t.Context(), db.Host(), boxes(db)
	mine, other := newHouse(t, db), newHouse(t, db)
	_, live := liveBox(t, db, mine)
	_, gone := liveBox(t, db, mine)
	_, dead := liveBox(t, db, mine)
	_, foreign := liveBox(t, db, other)
	check(t, condemn(ctx, in, dead.ID))
	check(t, in.Gone(ctx, gone.ID))
	for _, tt := range []struct {
		house string
		named []string
		want  []string
	}{
		{mine.id, nil, []string{live.ID, dead.ID}},
		{mine.id, []string{gone.ID, "none"}, []string{live.ID, gone.ID, dead.ID}},
		{other.id, []string{live.ID}, []string{live.ID, foreign.ID}},
	} {
		var got []string
		for _, b := range must(host.UsedSandboxes(ctx, tt.house, tt.named))(t) {
			got = append(got, b.ID)
		}
		slices.Sort(got)
		slices.Sort(tt.want)
		if !slices.Equal(got, tt.want) {
			t.Errorf("house %s, %q: got %q, want %q", tt.house, tt.named, got, tt.want)
		}
	}
	// A member of one house sees its own, as all that requests read.
	for agent, want := range map[string]bool{mine.member: false, other.member: true} {
		got := must(db.As(agent).UsedSandboxes(ctx, "", nil))(t)
		is := func(b rows.UsedBox) bool { return b.ID == foreign.ID }
		if slices.ContainsFunc(got, is) != want {
			t.Errorf("got %d sandboxes, with the other house's: %t", len(got), !want)
		}
	}
}
