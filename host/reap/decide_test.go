package reap_test

import (
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/reap"
)

// One row for each rule, and for each of its limits.
func TestDecide(t *testing.T) {
	const after = reap.DefaultGoneAfter
	ended := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	open := reap.Use{Kind: reap.UseRun, Thread: "t", ID: "r1", Silence: after - 1}
	silent, opens := open, open
	silent.Silence, opens.Opens = after, true
	command := reap.Use{Kind: reap.UseCommand, Thread: "t", ID: "x1", Silence: 100 * after, Begun: true}
	unbegun := reap.Use{Kind: reap.UseCommand, Thread: "t", ID: "x1", Silence: after}
	hold := reap.Use{Kind: reap.UseHold, ID: "h", Who: "arbe run on h", Until: ended}
	claim := reap.Use{Kind: reap.UseLaunch, Thread: "t", ID: "r1", Opens: true}
	uses := func(all ...reap.Use) func(*reap.Facts) { return func(f *reap.Facts) { f.Uses = all } }
	answer := func(a reap.Answer, more func(*reap.Facts)) func(*reap.Facts) {
		return func(f *reap.Facts) {
			if f.Answer = a; more != nil {
				more(f)
			}
		}
	}
	need := func(change func(*reap.Need)) func(*reap.Facts) {
		return func(f *reap.Facts) { change(&f.Needs[0]) }
	}
	unsaved := need(func(n *reap.Need) { n.Unsaved = "2 commits" })
	const (
		s, w, k, c, d = reap.Stay, reap.Wait, reap.Keep, reap.Condemn, reap.Release
	)
	for _, tt := range []struct {
		name                   string
		change                 func(*reap.Facts)
		sweep, replace, remove reap.Decision
		why                    string // of the sweep
	}{
		{"nobody needs it", func(*reap.Facts) {}, d, s, d, "nothing in it is needed"},
		{"released before", func(f *reap.Facts) { f.Released, f.Answer = true, reap.Unsure }, d, d, d, "given up"},
		{"its row has another machine", func(f *reap.Facts) { f.Stray = true; f.Ephemeral = false }, d, d, d, "another"},

		{"the provider does not answer", answer(reap.Unsure, nil), w, w, w, "started"},
		{"the provider does not answer, and work is unsaved", answer(reap.Unsure, unsaved), w, w, w, ""},
		{"gone", answer(reap.Gone, nil), c, c, c, "gone: the provider answers started"},
		{"gone, and kept by hand", answer(reap.Gone, func(f *reap.Facts) { f.Ephemeral = false }), c, c, c, ""},
		{"gone, and a run shows life", answer(reap.Gone, uses(open)), w, w, w, "but run r1 of thread t is open"},
		{"gone, and a run is silent", answer(reap.Gone, uses(silent)), c, c, c, ""},
		{"gone, and a run is about to open it", answer(reap.Gone, uses(opens, claim)), c, c, c, ""},
		{"gone, and a command is open", answer(reap.Gone, uses(command)), w, w, w, "but command x1 of thread t is open"},
		{"gone, and a command was never begun", answer(reap.Gone, uses(unbegun)), c, c, c, ""},
		{"gone, and held", answer(reap.Gone, uses(hold)), w, w, w, "held by arbe run on h until 2026-01-01T00:00:00.000Z"},
		{"faulty", answer(reap.Faulty, nil), d, c, d, "nothing in it is needed"},
		{"faulty, and a run shows life", answer(reap.Faulty, uses(open)), w, w, w, ""},
		{"faulty, and a command is open", answer(reap.Faulty, uses(command)), w, w, w, ""},
		{"faulty, with a repository", answer(reap.Faulty, unsaved), k, c, w, "2 commits"},

		{"kept by hand", func(f *reap.Facts) { f.Ephemeral = false }, s, s, d, "removed by hand"},
		{"kept by its run's launch", need(func(n *reap.Need) { n.Keep = true }), s, s, d, "removed by hand"},
		{"kept by hand, and a run is open", func(f *reap.Facts) { f.Ephemeral = false; f.Uses = []reap.Use{open} }, s, s, w, ""},
		{"a run is open", uses(open), w, s, w, "run r1 of thread t is open, its newest entry 2m0s old"},
		{"a silent run is open", uses(silent), w, s, w, ""},
		{"a command is open", uses(command), w, s, w, ""},
		{"held", uses(hold), w, s, w, "held by arbe run on h"},
		{"a launch opens it", uses(claim), w, s, w, "thread t is being launched in it"},
		{"its runner is alive", need(func(n *reap.Need) { n.Runner = reap.Alive }), w, s, w, "its runner is alive"},
		{
			"its runner may be alive, for long",
			need(func(n *reap.Need) { n.Runner, n.Since = reap.LifeUnknown, 100*reap.DefaultReapAfter }),
			w, s, w, "its runner may be alive",
		},
		{"work is wanted", need(func(n *reap.Need) { n.Wanted = "its work is not pushed" }), k, s, w, "not pushed"},
		{"work is unsaved", unsaved, k, s, w, "2 commits"},
		{
			"work is unsaved, for long",
			need(func(n *reap.Need) { n.Unsaved, n.Since = "2 commits", reap.DefaultReapAfter }),
			d, s, w, "kept for 24h",
		},
		{
			"of two threads one needs it",
			func(f *reap.Facts) {
				f.Needs = append(f.Needs, reap.Need{Thread: "u", Run: "r2", Runner: reap.Dead, Wanted: "a push"})
			}, k, s, w, "a push",
		},
		{
			"of two threads one keeps it",
			func(f *reap.Facts) {
				f.Needs = append(f.Needs, reap.Need{Thread: "u", Run: "r2", Runner: reap.Dead, Keep: true})
			}, s, s, d, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for purpose, want := range map[reap.Purpose]reap.Decision{
				reap.Sweep: tt.sweep, reap.Replace: tt.replace, reap.Remove: tt.remove,
			} {
				f := reap.Facts{
					For: purpose, Answer: reap.There, Why: "started", Ephemeral: true, GoneAfter: after,
					ReapAfter: reap.DefaultReapAfter, Threads: []string{"t"},
					Needs: []reap.Need{{Thread: "t", Run: "r0", Runner: reap.Dead, Ended: ended, Since: time.Minute}},
				}
				tt.change(&f)
				v := reap.Decide(f)
				if v.What != want || v.Why == "" || len(v.Threads) != 1 {
					t.Errorf("%d: %v (%s), want %v", purpose, v.What, v.Why, want)
				}
				if purpose == reap.Sweep && !strings.Contains(v.Why, tt.why) {
					t.Errorf("the reason is %q, want %q", v.Why, tt.why)
				}
				if purpose == reap.Remove && (v.What == reap.Wait) != (len(v.Against) > 0) {
					t.Errorf("%v, and against it stands %q", v.What, v.Against)
				}
				if v.What == reap.Keep && tt.name != "of two threads one needs it" &&
					!v.Until.Equal(ended.Add(reap.DefaultReapAfter)) {
					t.Errorf("kept until %v", v.Until)
				}
			}
		})
	}
}
