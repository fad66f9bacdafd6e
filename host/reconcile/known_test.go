package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/sandbox"
)

// A reconciler with an index acts as one that reads every thread. It reads only the threads of which it needs a text.
func TestReconcileByIndex(t *testing.T) {
	var did [2][]string
	for i := range did {
		w := newWorld(t)
		w.health["b0"] = sandbox.Gone
		var ids []string
		for k, entries := range [][]string{
			{running, inBox("b0", true, "")}, // gone
			{running, inBox("b1", true, ""), completed},
			{running, inBox("b2", true, "")},                                // its box lives, and it is silent
			{running, inBox("b3", true, "parent"), answer, completed},       // the text is needed
			{running, inBox("b4", true, "parent"), startedEntry, answer},    // it is silent, too
			{`c1 {"type":"chat","text":"hi"}`},                              // no run
			{running, completed, strings.ReplaceAll(running, "r1.", "r2.")}, // another run's word
		} {
			ids = append(ids, fmt.Sprint("t", k))
			w.post(ids[k], entries...)
		}
		w.ahead.Store(int64(time.Hour))
		r := w.reconciler()
		if i == 1 {
			r.Known = nil
		}
		for range 2 {
			for _, id := range ids {
				s, err := r.Thread(t.Context(), id)
				line := fmt.Sprint(id, " ", s.Status, " ", s.Open, " ", err)
				for _, a := range s.Actions {
					line += " " + a.Did
				}
				did[i] = append(did[i], line)
			}
		}
		if n := w.whole.Load(); n != 0 {
			t.Errorf("%d reads of whole threads", n)
		}
		if n := w.reads.Load(); i == 0 && n > 2+int64(len(ids)) {
			t.Errorf("%d reads of threads from their start: want those of leases, and one for each text", n)
		}
		for _, id := range append(ids, "parent") {
			for _, e := range w.entries(id) {
				name, _, _ := strings.Cut(e, " ")
				did[i] = append(did[i], id+" "+name)
			}
		}
	}
	if d := cmp.Diff(did[1], did[0]); d != "" {
		t.Error(d)
	}
}

// A loop with an index reads no thread on which nothing is new, neither at its start nor later.
func TestLoopReadsWhatIsNew(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.post(fmt.Sprint("done", i), running, inBox(fmt.Sprint("x", i), true, ""), completed)
		w.health[fmt.Sprint("x", i)] = sandbox.Gone
	}
	for i := range 3 {
		w.post(fmt.Sprint("open", i), running, inBox(fmt.Sprint("b", i), true, ""))
		w.runs[fmt.Sprint("b", i)] = true
	}
	r := w.reconciler()
	// The first passes do what there is to do.
	pass := func(n int) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		lists := 0
		threads := func(f func(string, uint64) error) error {
			if lists++; lists == n {
				stop()
			}
			return w.index.Versions(f)
		}
		if err := r.Loop(ctx, time.Millisecond, threads, func(string, reconcile.State) {}); err != nil {
			t.Error(err)
		}
	}
	for i := range 20 {
		if _, err := w.index.Fold(t.Context(), fmt.Sprint("done", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if _, err := w.index.Fold(t.Context(), fmt.Sprint("open", i)); err != nil {
			t.Fatal(err)
		}
	}
	pass(2)
	before := w.reads.Load()
	pass(3)
	if n := w.reads.Load() - before; n != 0 {
		t.Errorf("%d threads were read", n)
	}
}
