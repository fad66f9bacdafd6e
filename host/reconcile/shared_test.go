package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakerows"
)

// boxRows are rows in memory, of which Noted may fail.
type boxRows struct {
	fakerows.Rows
	noted error
}

func newRows() *boxRows {
	return &boxRows{Rows: fakerows.New("boxes").As(func(do func() error) error { return do() })}
}

func (r *boxRows) Noted(ctx context.Context, n rows.Notice) error {
	if r.noted != nil {
		return r.noted
	}
	return r.Rows.Noted(ctx, n)
}

// live gives a thread a live box, which nobody holds.
func (r *boxRows) live(t *testing.T, thread, machine string) (row string) {
	t.Helper()
	if r.Box(thread).ID == "" {
		r.Thread(thread, "")
	}
	turn, err := r.Obtain(t.Context(), rows.BoxOrder{Thread: thread, Hold: lease.Opening(thread), Maker: "maker"})
	if err == nil {
		err = r.Ready(t.Context(), turn.Row.ID, "maker", machine)
	}
	s, rerr := r.Lease(turn.Row.ID).Read(t.Context())
	for _, h := range s.Holds {
		err = errors.Join(err, r.Lease(turn.Row.ID).Drop(t.Context(), h.Holder))
	}
	if err = errors.Join(err, rerr); err != nil {
		t.Fatal(err)
	}
	return turn.Row.ID
}

// A box of several threads is released when none of them needs it, whichever it was made for.
func TestReapShared(t *testing.T) {
	const (
		push   = `,"after":{"push":{"repo":"o/r","branch":"b","pr":true}},"sandbox"`
		orphan = `r2.orphan.0 {"type":"signal.thread.pi_session_orphaned","runId":"r2","harness":"pi","reason":"silent"}`
		pushed = `r2.push.0 {"type":"signal.dispatch.push","runId":"r2","pushed":true}`
	)
	second := func(entry string) string { return strings.ReplaceAll(entry, "r1", "r2") }
	in := second(inBox("b1", true, ""))
	wanted := strings.Replace(in, `,"sandbox"`, push, 1)
	ended := second(completed)
	for _, tt := range []struct {
		name    string
		entries []string // of the other thread
		ahead   time.Duration
		set     func(*world)
		gone    bool
		kept    string // the reason on the other thread
	}{
		{name: "never ran", gone: true},
		{name: "ran in another box", entries: []string{second(running), second(inBox("b9", true, ""))}, gone: true},
		{name: "has ended", entries: []string{second(running), in, ended}, gone: true},
		{name: "runs", entries: []string{second(running), in}},
		{name: "wants a push", entries: []string{second(running), wanted, ended}, kept: "its work is not pushed"},
		{name: "has pushed", entries: []string{second(running), wanted, ended, pushed}, gone: true},
		{
			name: "wanted a push a day ago", entries: []string{second(running), wanted, ended}, ahead: 25 * time.Hour,
			gone: true,
		},
		{
			name: "has unsaved work", entries: []string{second(running), in, ended}, kept: "2 commits",
			set: func(w *world) { w.labels["b1"][sandbox.LabelTree] = sandbox.TreeRepository },
		},
		{
			name: "has an end that its runner may replace", entries: []string{second(running), in, orphan},
			set: func(w *world) { w.runs["b1"] = true },
		},
		{name: "keeps it", entries: []string{second(running), second(inBox("b1", false, "")), ended}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.health["b1"] = sandbox.Live
			w.labels["b1"] = w.label("t1", "true")
			store := newRows()
			w.labels["b1"][sandbox.LabelRow] = store.live(t, "t1", "b1")
			store.Thread("t2", w.labels["b1"][sandbox.LabelRow])
			saved := `r1.push.0 {"type":"signal.dispatch.push","runId":"r1","pushed":true}`
			w.post("t1", running, inBox("b1", true, ""), completed, saved)
			if tt.entries != nil {
				w.post("t2", tt.entries...)
			}
			if tt.set != nil {
				tt.set(w)
			}
			w.ahead.Store(int64(tt.ahead))
			r := w.reconciler()
			r.Rows = store
			r.Host.Unsaved = func(context.Context, sandbox.Sandbox, sandbox.Box) (string, error) {
				return "2 commits", nil
			}
			for range 2 {
				if s, err := r.Thread(t.Context(), "t1"); err != nil || !tt.gone && tt.name != "keeps it" && !s.Open {
					t.Fatalf("%+v, %v", s, err)
				}
			}
			if got := len(w.gone) > 0; got != tt.gone {
				t.Errorf("released %v, want %t", w.gone, tt.gone)
			}
			all := strings.Join(w.entries("t2"), "\n")
			kept := strings.Count(all, "sandbox_kept")
			if kept > 1 || kept == 1 != (tt.kept != "") || !strings.Contains(all, tt.kept) {
				t.Errorf("on the other thread: %s", all)
			}
			if all := strings.Join(w.entries("t1"), "\n"); strings.Contains(all, "sandbox_kept") {
				t.Errorf("on the thread: %s", all)
			}
		})
	}
}

// A run of another thread that comes and ends while the box is released keeps it, too.
func TestReapSharedMeanwhile(t *testing.T) {
	w := newWorld(t)
	store, looks := newRows(), 0
	w.health["b1"], w.labels["b1"] = sandbox.Live, w.label("t1", "true")
	row := store.live(t, "t1", "b1")
	w.labels["b1"][sandbox.LabelRow], w.labels["b1"][sandbox.LabelTree] = row, sandbox.TreeRepository
	store.Thread("t2", row)
	w.post("t1", running, inBox("b1", true, ""), completed)
	r := w.reconciler()
	r.Rows = store
	r.Host.Unsaved = func(context.Context, sandbox.Sandbox, sandbox.Box) (string, error) {
		if looks++; looks == 1 { // the look ends with this question
			w.post("t2", running, strings.Replace(inBox("b1", true, ""), `,"sandbox"`,
				`,"after":{"push":{"repo":"o/r","branch":"b","pr":true}},"sandbox"`, 1), completed)
			if err := store.Lease(row).Hold(t.Context(), lease.OfRun("t2", "r1")); err != nil {
				t.Error(err)
			}
		}
		return "", nil
	}
	if _, err := r.Thread(t.Context(), "t1"); err != nil {
		t.Fatal(err)
	}
	if looks != 2 || len(w.gone) > 0 {
		t.Errorf("%d looks, released %v", looks, w.gone)
	}
}

// A sweep deletes the machines of a live row that are not its own, and posts what a host that died has not.
func TestSweep(t *testing.T) {
	w, store := newWorld(t), newRows()
	first := store.live(t, "t1", "b0")
	store.Thread("t3", first)
	if err := store.Gone(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	second := store.live(t, "t1", "b1")
	store.Thread("t4", "")
	turn, err := store.Obtain(t.Context(), rows.BoxOrder{Thread: "t4", Hold: lease.Opening("t4"), Maker: "m"})
	if err != nil {
		t.Fatal(err)
	}
	for id, row := range map[string]string{"b1": second, "b2": second, "b3": turn.Row.ID} {
		w.health[id], w.labels[id] = sandbox.Live, w.label("t1", "")
		w.labels[id][sandbox.LabelRow] = row // that of b3 is pending: its machine may not be known yet
	}
	w.post("t1", running, inBox("b1", false, ""), completed)
	store.noted = errors.New("the database is away")
	r := w.reconciler()
	r.Rows = store
	for range 2 {
		err := r.All(t.Context(), nil, func(string, reconcile.State) {})
		if (err == nil) != (store.noted == nil) {
			t.Error(err)
		}
		store.noted = nil
	}
	if got := strings.Join(slices.Compact(w.gone), " "); got != "b2" {
		t.Errorf("deleted %q, want b2", got)
	}
	want := `{"type":"signal.thread.sandbox_resumed","sandbox":"` + second + `","from":"` + first + `"}`
	for _, id := range []string{"t1", "t3"} {
		if all := strings.Join(w.entries(id), "\n"); strings.Count(all, want) != 1 {
			t.Errorf("on the thread %s: %s", id, all)
		}
	}
	if left, err := store.Notices(t.Context()); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}
