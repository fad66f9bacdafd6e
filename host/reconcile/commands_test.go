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
	"arbe.0sk.ar/runner/thread"
)

// A box that was made for a command stays while its thread may run more of them, and is released after a day without
// one, and with its thread closed or deleted. Work that is nowhere else keeps it for a day after that.
func TestReapOfCommands(t *testing.T) {
	const day = 25 * time.Hour
	ended := strings.Replace(execEnd, "x1.exec.3", thread.ExecID("x1", 2), 1)
	command := []string{execStarted, execRunning, ended}
	ranToo := append(slices.Clone(command), running, inBox("b1", false, ""), completed)
	closed := func(w *world, r *boxRows) { r.Close("t1") }
	unsaved := func(w *world, r *boxRows) {
		r.Close("t1")
		w.labels["b1"][sandbox.LabelTree] = sandbox.TreeRepository
	}
	for _, tt := range []struct {
		name    string
		entries []string
		age     time.Duration // of the box
		after   time.Duration // --reap-after; 0 for a day
		set     func(*world, *boxRows)
		gone    bool
	}{
		{name: "its command has ended", entries: command},
		{name: "its command has just ended, and it is old", entries: command, age: day},
		{name: "a day after its command", entries: command, age: day, after: 1, gone: true},
		{name: "a run has ended in it", entries: ranToo},
		{name: "a day after a run in it", entries: ranToo, age: day, after: 1, gone: true},
		{name: "kept by hand for a run", entries: ranToo, age: day, after: 1, set: func(w *world, _ *boxRows) {
			w.labels["b1"][sandbox.LabelRun] = "r1"
		}},
		{name: "closed", entries: command, set: closed, gone: true},
		{name: "closed, and a command is open", entries: command[:2], set: closed},
		{name: "closed, and a run is open", entries: ranToo[:5], set: closed},
		{name: "closed, with unsaved work", entries: command, set: unsaved},
		{name: "closed, with unsaved work of a run", entries: ranToo, set: unsaved},
		{name: "closed, with unsaved work, a day ago", entries: command, age: day, after: 1, set: unsaved, gone: true},
		{name: "closed, and shared with an open thread", entries: command, set: func(w *world, r *boxRows) {
			r.Close("t1")
			r.Thread("t2", w.labels["b1"][sandbox.LabelRow])
		}},
		{name: "deleted", set: func(w *world, r *boxRows) { r.Delete("t1") }, gone: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, store := newWorld(t), newRows()
			w.health["b1"], w.runs["b1"], w.age = sandbox.Live, true, tt.age
			w.labels["b1"] = w.label("t1", "")
			row := store.live(t, "t1", "b1")
			w.labels["b1"][sandbox.LabelRow] = row
			hold := rows.Hold{Holder: "exec:t1/x1", ThreadID: "t1", RunID: "x1"}
			if err := store.Lease(row).Hold(t.Context(), hold); err != nil {
				t.Fatal(err)
			}
			if tt.entries != nil {
				w.post("t1", tt.entries...)
			} else if err := store.Lease(row).Drop(t.Context(), hold.Holder); err != nil {
				t.Fatal(err)
			}
			if tt.set != nil {
				tt.set(w, store)
			}
			r := w.reconciler()
			r.Rows, r.ReapAfter = store, tt.after
			r.Host.Unsaved = func(context.Context, sandbox.Sandbox, sandbox.Box) (string, error) {
				return "2 commits", nil
			}
			for range 2 {
				if err := r.All(t.Context(), nil, func(string, reconcile.State) {}); err != nil {
					t.Fatal(err)
				}
			}
			if gone := len(w.gone) > 0; gone != tt.gone {
				t.Errorf("released: %t, want %t", gone, tt.gone)
			}
			if err := store.Lease(row).Hold(t.Context(), hold); errors.Is(err, lease.ErrReleased) != tt.gone {
				t.Errorf("a command gets it: %v", err)
			}
		})
	}
}
