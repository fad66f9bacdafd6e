package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/output"
)

// A hundred open runs are one pass with one list, a few questions at a time; and a loop tries again only at what has
// changed or is open.
func TestLoop(t *testing.T) {
	w := newWorld(t)
	versions := map[string]uint64{}
	for i := range 100 {
		id, ref := fmt.Sprintf("t%d", i), fmt.Sprintf("b%d", i)
		w.health[ref] = sandbox.Gone
		w.post(id, running, inBox(ref, true, ""))
		versions[id] = 2
	}
	w.post("idle", `c1 {"type":"chat","text":"hi"}`)
	w.ahead.Store(int64(3 * time.Minute))
	versions["idle"] = 1
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	passes := 0
	err := w.reconciler().Loop(ctx, time.Millisecond, func(f func(string, uint64) error) error {
		if passes++; passes == 3 {
			stop()
		}
		for id, version := range versions {
			if passes > 1 && id != "idle" {
				version = 4 // with what was posted
			}
			if err := f(id, version); err != nil {
				return err
			}
		}
		return nil
	}, func(string, reconcile.State) {})
	if err != nil || w.probes.Load() != 200 || w.most.Load() > 8 || w.lists.Load() > 12 {
		t.Errorf("%v; asked %d times, %d at once, %d lists", err, w.probes.Load(), w.most.Load(), w.lists.Load())
	}
	if s, err := w.reconciler().Thread(t.Context(), "t42"); err != nil || s.Status != "failed" {
		t.Errorf("got %+v, %v", s, err)
	}
}

// A provider that hangs holds up nobody but the threads with boxes of its own.
func TestHangingProvider(t *testing.T) {
	w := newWorld(t)
	other := &boxes{health: map[string]sandbox.Health{}, hang: true}
	w.health["b1"] = sandbox.Gone
	ids := []string{"good"}
	for i := range 40 {
		id := fmt.Sprintf("t%d", i)
		ids = append(ids, id)
		w.post(id, running, strings.Replace(inBox("x", true, ""), `"boxes"`, `"others"`, 1))
	}
	w.post("good", running, inBox("b1", true, ""))
	w.ahead.Store(int64(3 * time.Minute))
	r := w.reconciler()
	r.Providers["others"] = other
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- r.All(ctx, ids, func(string, reconcile.State) {}) }()
	for len(w.entries("good")) < 4 { // until it is given up, while the others wait for their list
		if t.Context().Err() != nil {
			t.Fatal("the thread with another provider is not settled")
		}
	}
	stop()
	if err := <-over; err == nil || other.lists.Load() > 1 || other.probes.Load() > 8 {
		t.Errorf("%v; %d lists, %d questions", err, other.lists.Load(), other.probes.Load())
	}
}

// A loop whose provider does not answer logs it once for each kind of pass, and once that it answers again.
func TestLoopLogsOnce(t *testing.T) {
	w := newWorld(t)
	w.hold(errors.New("no answer"))
	w.post("t1", running, inBox("b1", true, ""), startedEntry)
	var out output.Buffer
	r := w.reconciler()
	r.Log = slog.New(slog.NewTextHandler(&out, nil))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	passes := 0
	err := r.Loop(ctx, time.Millisecond, func(f func(string, uint64) error) error {
		switch passes++; passes { // each is four of the loop
		case 4:
			w.hold(nil)
		case 8:
			stop()
		}
		return f("t1", 1)
	}, func(string, reconcile.State) {})
	failed := strings.Count(out.String(), "reconcile pass failed")
	again := strings.Count(out.String(), "reconcile passes succeed again")
	if err != nil || failed != 2 || again != 2 {
		t.Errorf("%v, logged %d failures and %d recoveries:\n%s", err, failed, again, out.String())
	}
}
