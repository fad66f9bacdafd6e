package control_test

import (
	"slices"
	"testing"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

// A thread is looked at until nothing is open up to the end of its log, where its house has bots answer.
func TestUnanswered(t *testing.T) {
	db, url := open(t, control.Config{})
	own, off := settled(t, db), settled(t, db)
	c := connect(t, url)
	_ = must(c.Exec(t.Context(), `update houses set dispatch_since = null where id = $1`, off.id))(t)
	in := func(house string) (id string) {
		v, err := db.Host().CreateThread(t.Context(), rows.NewThread{House: house})
		if err != nil {
			t.Fatal(err)
		}
		return v.ID
	}
	fresh, behind, done, other := in(own.id), in(own.id), in(own.id), in(off.id)
	for _, at := range []rows.ThreadAt{{ID: behind, Offset: "1"}, {ID: done, Offset: "1"}, {ID: done, Offset: "2"}} {
		if err := db.Answered(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Answered(t.Context(), rows.ThreadAt{ID: "none", Offset: "1"}); err != nil {
		t.Errorf("a thread without a row: %v", err)
	}
	look := func(want ...string) {
		t.Helper()
		var some []rows.ThreadAt
		for _, id := range []string{fresh, behind, done, other, "none"} {
			some = append(some, rows.ThreadAt{ID: id, Offset: "2"})
		}
		got, err := db.Unanswered(t.Context(), some)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	look(fresh, behind)
	_ = must(c.Exec(t.Context(), `truncate dispatch_cache`))(t)
	look(fresh, behind, done)
}
