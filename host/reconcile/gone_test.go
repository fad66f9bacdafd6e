package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
)

// dead reports whether a row is dead, and whether it was condemned.
func (r *boxRows) dead(t *testing.T, row string) (dead, condemned bool) {
	t.Helper()
	now, _, err := r.Row(t.Context(), row)
	if err != nil {
		t.Fatal(err)
	}
	return now.Dead, !now.Condemned.IsZero()
}

// second returns an entry of the run r2 in place of r1.
func second(entry string) string { return strings.ReplaceAll(entry, "r1", "r2") }

// To settle one thread of a box that is gone settles all of them, and the row, at once.
func TestGoneBoxOfThreads(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(w *world, rows *boxRows, row string)
		dead bool
		t2   string // the status of the other thread's run
	}{
		{"gone", func(*world, *boxRows, string) {}, true, "failed"},
		{"the other run is heard of", func(w *world, _ *boxRows, _ string) { w.late["t2"] = true }, false, "running"},
		{"somebody holds it", func(w *world, in *boxRows, row string) {
			hold := rows.Hold{Holder: "after:h/1/x", TTL: time.Hour}
			if err := in.Lease(row).Hold(w.t.Context(), hold); err != nil {
				w.t.Error(err)
			}
		}, false, "failed"},
		{"a command of a third thread is silent", func(w *world, rows *boxRows, row string) {
			rows.Thread("t3", row)
			w.post("t3", execStarted, execRunning, execOutput)
		}, false, "failed"},
		{"a command of a third thread is heard of", func(w *world, rows *boxRows, row string) {
			rows.Thread("t3", row)
			w.post("t3", execStarted, execRunning, execOutput)
			w.late["t3"] = true
		}, false, "failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, store := newWorld(t), newRows()
			row := store.live(t, "t1", "b1")
			store.Thread("t2", row)
			store.Thread("t9", row) // it never ran
			w.post("t1", running, inBox("b1", false, ""))
			w.post("t2", second(running), second(inBox("b1", false, "")))
			gone(w)
			w.ahead.Store(int64(3 * time.Minute))
			tt.set(w, store, row)
			r := w.reconciler()
			r.Rows = store
			s, err := r.Thread(t.Context(), "t1")
			if err != nil || s.Status != "failed" {
				t.Fatalf("%+v, %v", s, err)
			}
			if dead, condemned := store.dead(t, row); dead != tt.dead || condemned != tt.dead {
				t.Errorf("the row is dead: %v, condemned: %v", dead, condemned)
			}
			if s, err := r.Thread(t.Context(), "t2"); err != nil || s.Status != tt.t2 {
				t.Errorf("the other thread: %+v, %v", s, err)
			}
			if len(w.gone) > 0 {
				t.Errorf("deleted: %v", w.gone)
			}
			if len(w.entries("t9")) > 0 {
				t.Error("a thread that never ran has entries")
			}
		})
	}
}

func twoCommits(context.Context, sandbox.Sandbox, sandbox.Box) (string, error) {
	return "2 commits", nil
}

// The machine of a condemned row that turns up again is decided about like any other: work in it is kept.
func TestTurnsUpAgain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		set   func(*world)
		ahead time.Duration
		gone  bool
	}{
		{"with nothing in it", func(*world) {}, 0, true},
		{"with a runner", func(w *world) { w.runs["b1"] = true }, 0, false},
		{"with a runner, for long", func(w *world) { w.runs["b1"] = true }, 25 * time.Hour, false},
		{"with unsaved work", func(w *world) { w.labels["b1"][sandbox.LabelTree] = sandbox.TreeRepository }, 0, false},
		{"in error", func(w *world) { w.states["b1"] = "error" }, 0, false},
		{"in doubt", func(w *world) { w.health["b1"] = sandbox.Gone }, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, store := newWorld(t), newRows()
			row := store.live(t, "t1", "b1")
			w.post("t1", running, inBox("b1", true, ""), completed)
			done, err := store.Condemn(t.Context(), row, nil, []string{"t1"})
			if err != nil || !done || store.Gone(t.Context(), row) != nil {
				t.Fatal(done, err)
			}
			store.live(t, "t1", "b2") // the thread has another one
			w.health["b1"], w.labels["b1"] = sandbox.Live, w.label("t1", "true")
			w.labels["b1"][sandbox.LabelRow] = row
			tt.set(w)
			w.ahead.Store(int64(tt.ahead))
			r := w.reconciler()
			r.Rows = store
			r.Host.Unsaved = twoCommits
			for range 2 {
				if err := r.All(t.Context(), nil, func(string, reconcile.State) {}); err != nil {
					t.Fatal(err)
				}
			}
			if got := slices.Contains(w.gone, "b1"); got != tt.gone {
				t.Errorf("deleted: %v, want %v", got, tt.gone)
			}
			released := strings.Count(strings.Join(w.entries("t1"), "\n"), `"signal.dispatch.sandbox_released"`)
			if (released == 1) != tt.gone {
				t.Errorf("%d entries of its release", released)
			}
		})
	}
}

// A box is deleted once each of its threads has the signal of it, and no thread is made for that.
func TestReleaseIsOnTheThreads(t *testing.T) {
	w, store := newWorld(t), newRows()
	row := store.live(t, "t1", "b1")
	w.health["b1"], w.labels["b1"] = sandbox.Live, w.label("t1", "true")
	w.labels["b1"][sandbox.LabelRow] = row
	store.Thread("t2", row)
	store.Thread("t3", row)
	w.post("t1", running, inBox("b1", true, ""), completed)
	w.post("t2", second(running), second(inBox("b1", true, "")), second(completed))
	const entry = `.released {"type":"signal.dispatch.sandbox_released","sandbox":{"provider":"boxes","ref":"b1"},` +
		`"reason":"nothing in it is needed"}`
	seen := map[string]bool{}
	w.deleted = func(string) {
		for _, id := range []string{"t1", "t2"} {
			all := w.entries(id)
			seen[id] = strings.HasPrefix(all[len(all)-1], "sandbox.") && strings.HasSuffix(all[len(all)-1], entry)
		}
	}
	r := w.reconciler()
	r.Rows = store
	for range 2 {
		if _, err := r.Thread(t.Context(), "t1"); err != nil {
			t.Fatal(err)
		}
	}
	if !seen["t1"] || !seen["t2"] || len(w.gone) == 0 {
		t.Errorf("on the threads when it was deleted: %v; deleted %v", seen, w.gone)
	}
	if len(w.entries("t3")) > 0 {
		t.Error("a thread that never ran has entries")
	}
	if dead, condemned := store.dead(t, row); !dead || condemned {
		t.Errorf("the row is dead: %v, condemned: %v", dead, condemned)
	}
}

// A box that a host could not use is looked at by the next pass, which trusts it again, or condemns it.
func TestDoubts(t *testing.T) {
	for name, tt := range map[string]struct {
		health       sandbox.Health
		dead, doubts bool
	}{
		"it lives":         {sandbox.Live, false, false},
		"it is gone":       {sandbox.Gone, true, false},
		"nobody knows yet": {sandbox.Unknown, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, store := newWorld(t), newRows()
			row := store.live(t, "t1", "b1")
			w.post("t1", running, inBox("b1", false, ""))
			w.health["b1"] = tt.health
			w.ahead.Store(int64(3 * time.Minute))
			if err := store.Doubt(t.Context(), row, "not found"); err != nil {
				t.Fatal(err)
			}
			r := w.reconciler()
			r.Rows = store
			err := r.All(t.Context(), nil, func(string, reconcile.State) {})
			left, lerr := store.Doubted(t.Context())
			if err != nil || lerr != nil || (len(left) > 0) != tt.doubts {
				t.Errorf("doubted: %v, %v, %v", left, err, lerr)
			}
			if dead, _ := store.dead(t, row); dead != tt.dead {
				t.Errorf("the row is dead: %v", dead)
			}
			if s, _ := r.Thread(t.Context(), "t1"); (s.Status == "failed") != tt.dead {
				t.Errorf("the thread is %s", s.Status)
			}
		})
	}
}

// Explain reports what the next pass does, and does nothing.
func TestExplain(t *testing.T) {
	w, store := newWorld(t), newRows()
	row := store.live(t, "t4", "b4") // its machine is not listed
	if _, err := store.Obtain(t.Context(), rows.BoxOrder{Thread: "t4", Hold: lease.OfRun("t4", "r9")}); err != nil {
		t.Fatal(err)
	}
	for i, entries := range [][]string{
		{running, inBox("b1", true, ""), completed},
		{running, inBox("b2", true, "")},
		{running, inBox("b3", true, ""), completed},
	} {
		id, box := fmt.Sprint("t", i+1), fmt.Sprint("b", i+1)
		w.post(id, entries...)
		w.health[box], w.labels[box] = sandbox.Live, w.label(id, "true")
	}
	w.labels["b3"][sandbox.LabelTree] = sandbox.TreeRepository
	w.health["b4"] = sandbox.Gone
	r := w.reconciler()
	r.Rows = store
	r.Host.Unsaved = twoCommits
	explain := func(id string) (found []string) {
		t.Helper()
		if err := r.Explain(t.Context(), id, func(f reconcile.Finding) {
			found = append(found, fmt.Sprint(f.Sandbox.ID, " ", f.Decision, " ", f.Why, " ", f.Threads))
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(found)
		return found
	}
	threads := map[string]int{}
	for _, id := range []string{"t1", "t2", "t3", "t4", lease.Stream(sandbox.Ref{Provider: "boxes", ID: "b1"})} {
		threads[id] = len(w.entries(id))
	}
	found := explain("")
	want := []string{
		"b1 delete nothing in it is needed [t1]", "b2 wait run r1 of thread t2 is open", "b3 keep 2 commits [t3]",
		"b4 condemn gone: the provider answers started []",
	}
	for i, line := range found {
		if len(found) != len(want) || !strings.HasPrefix(line, want[i]) {
			t.Fatalf("got %q, want %q", found, want)
		}
	}
	if one := explain("t3"); len(one) != 1 || one[0] != found[2] {
		t.Errorf("of one thread: %q", one)
	}
	for id, n := range threads {
		if now := w.entries(id); len(now) != n {
			t.Errorf("on %s: %v", id, now)
		}
	}
	if dead, _ := store.dead(t, row); dead || len(w.gone) > 0 {
		t.Errorf("the row is dead: %v; deleted %v", dead, w.gone)
	}
	// What it reports is done.
	if err := r.All(t.Context(), []string{"t1", "t2", "t3"}, func(string, reconcile.State) {}); err != nil {
		t.Fatal(err)
	}
	if dead, _ := store.dead(t, row); !dead || strings.Join(w.gone, " ") != "b1" {
		t.Errorf("the row is dead: %v; deleted %v", dead, w.gone)
	}
}

// A host that only holds a box for a while is reported, with the end of its hold.
func TestWaits(t *testing.T) {
	w := newWorld(t)
	w.health["b1"], w.labels["b1"] = sandbox.Live, w.label("t1", "true")
	client, _ := w.client(lease.Stream(sandbox.Ref{Provider: "boxes", ID: "b1"}))
	hold := rows.Hold{Holder: lease.NewHolder(lease.KindWatches), ThreadID: "t1", RunID: "r1", TTL: lease.TTL}
	if err := (lease.OnStream{Client: client}).Hold(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	w.post("t1", running, strings.Replace(inBox("b1", true, ""), `,"sandbox"`,
		`,"after":{"push":{"repo":"o/r","branch":"b","pr":true}},"sandbox"`, 1), completed)
	r := w.reconciler()
	r.Host.Push = nil
	s, err := r.Thread(t.Context(), "t1")
	if err != nil || len(s.Actions) > 0 || len(s.Waits) != 1 || s.Waits[0].Did != reconcile.Waits ||
		!strings.HasPrefix(s.Waits[0].Why, "boxes:b1 is held by arbe run on ") ||
		!strings.Contains(s.Waits[0].Why, " for run r1 of thread t1 until 2") {
		t.Errorf("%+v, %v", s, err)
	}
}
