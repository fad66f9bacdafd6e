package provision_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/rows"
)

// That a task waits for its house is posted once while it does, again after a failure, and by each pass of Once.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := true
		var looks atomic.Int32
		var posted []string
		p := provision.Provisioner{
			Queue: newQueue(), Host: &host{}, Log: quiet(),
			Held: func(context.Context) ([]rows.HeldTask, error) {
				switch looks.Add(1) {
				case 3:
					return nil, errAway
				case 5:
					return []rows.HeldTask{{Thread: "b", Runs: 2}}, nil // a has its place
				}
				return []rows.HeldTask{{Thread: "a", Runs: 2}, {Thread: "b", Runs: 2}}, nil
			},
			Hold: func(_ context.Context, h rows.HeldTask) error {
				if h.Thread == "b" && fails {
					fails = false
					return errors.New("the thread server is away")
				}
				posted = append(posted, h.Thread)
				return nil
			},
		}
		play(t, p, func() bool { return looks.Load() == 7 })
		if want := []string{"a", "b", "a"}; !slices.Equal(posted, want) {
			t.Errorf("posted %q, want %q", posted, want)
		}
		posted = nil
		if err := p.Once(t.Context()); err != nil || !slices.Equal(posted, []string{"a", "b"}) {
			t.Errorf("posted %q, %v", posted, err)
		}
	})
}
