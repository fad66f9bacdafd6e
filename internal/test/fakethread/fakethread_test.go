package fakethread

import (
	"fmt"
	"testing"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Heartbeats that were made before the run's end may come after it, however many. Of later ones there may be two.
func TestHeartbeatsAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := New(t, nil)
	beats := 0
	post := func(made time.Time) {
		t.Helper()
		beats++
		e := thread.Entry{
			ID: fmt.Sprint("r1.beat.", beats), TS: thread.Stamp(made),
			Payload: thread.Marshal(thread.Heartbeat{Signal: thread.Signal{Type: thread.TypeHeartbeat, RunID: "r1"}}),
		}
		if err := s.Client().Heartbeat(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now()
	s.Put(thread.Entry{ID: "r1.end.0", TS: thread.Stamp(before), Payload: thread.Marshal(thread.StatusChanged{
		Signal: thread.Signal{Type: thread.TypeStatus, RunID: "r1"}, Status: thread.StatusCompleted,
	})})
	for range 5 {
		post(before)
	}
	after := time.Now().Add(time.Second)
	post(after)
	post(after)
	refused := func() (all []string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		all, s.broken = s.broken, nil // what is left fails the test
		return all
	}
	if all := refused(); len(all) > 0 {
		t.Errorf("refused: %q", all)
	}
	post(after)
	if all := refused(); len(all) != 1 {
		t.Errorf("a third later one: %q", all)
	}
}
