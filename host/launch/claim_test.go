package launch

import (
	"fmt"
	"testing"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// The number of the thread's next run follows from its runs and claims; a run or a launch that is under way is in the
// way.
func TestFree(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	young, old := now.Add(-time.Second), now.Add(-claimTimeout)
	for _, tt := range []struct {
		name   string
		runs   []string // "id status"
		claims map[int]claim
		k      int
		busy   string
	}{
		{"a new thread", nil, nil, 0, ""},
		{"a run that has ended", []string{"a completed"}, map[int]claim{0: {"a", old}}, 1, ""},
		{"a run without a claim, started by hand", []string{"a completed"}, nil, 1, ""},
		{"an open run", []string{"a running"}, map[int]claim{0: {"a", old}}, 0, "a"},
		{"a claim whose run is on its way", nil, map[int]claim{0: {"a", young}}, 0, "a"},
		{"a claim of a launch that died", nil, map[int]claim{0: {"a", old}}, 1, ""},
		{"two such claims", nil, map[int]claim{0: {"a", old}, 1: {"b", old}}, 2, ""},
		{"a dead claim, and a run behind it", []string{"b failed"}, map[int]claim{0: {"a", old}, 1: {"b", old}}, 2, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := log{claims: tt.claims, now: now}
			for _, r := range tt.runs {
				var id, status string
				if _, err := fmt.Sscan(r, &id, &status); err != nil {
					t.Fatal(err)
				}
				for _, s := range []string{thread.StatusRunning, status} {
					l.fold.Add(thread.Entry{ID: id + "." + s, Payload: thread.Marshal(thread.StatusChanged{
						Signal: thread.Signal{Type: thread.TypeStatus, RunID: id}, Status: s,
					})})
				}
			}
			if k, busy := l.free(); k != tt.k || busy != tt.busy {
				t.Errorf("got %d, %q, want %d, %q", k, busy, tt.k, tt.busy)
			}
		})
	}
}
