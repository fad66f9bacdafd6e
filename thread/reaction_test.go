package thread_test

import (
	"testing"

	"arbe.0sk.ar/runner/thread"
)

// The ids of bots' commands are of another form than those of people's.
func TestIsCallKey(t *testing.T) {
	reaction := thread.ReactionID("t1", "b1", 0)
	for id, want := range map[string]bool{
		thread.CallKey(reaction, 0, 12): true, reaction: false, "": false, "x_": false, "x_-0-0": false,
		"x_a-0-0": false, "0199c8f2-1111-7000-8000-000000000001": false, "member-x_a": false,
	} {
		if got := thread.IsCallKey(id); got != want {
			t.Errorf("%q: got %v", id, got)
		}
	}
}
