package reap

import (
	"context"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// vacateEvery is the interval of looks at a box whose runs and commands were asked to end.
const vacateEvery = 2 * time.Second

const removed = "its sandbox is removed"

// Vacate asks each run and command in a box to end, of all threads that share it, and removes the box once their ends
// are on the threads. A box that is still in use after some time stays, and so does one with unsaved work: the verdict
// is that of Remove. asked receives whom it has asked.
func (r *Reaper) Vacate(ctx context.Context, b Box, within time.Duration, asked func(Use)) (v Verdict, err error) {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	f, err := r.Look(limited, b, Remove, rows.Hold{})
	if err != nil {
		return v, err
	}
	for _, u := range f.Uses {
		var order any
		switch u.Kind {
		case UseRun:
			order = thread.Cancel{Signal: thread.Signal{Type: thread.TypeCancel, RunID: u.ID}, Reason: removed}
		case UseCommand:
			order = thread.ExecCancel{Exec: thread.Exec{Type: thread.TypeExecCancel, ExecID: u.ID}, Reason: removed}
		default:
			continue // a hold is waited for
		}
		// The id follows from the run or the command: a repeat asks nothing more.
		if _, err := r.post(limited, u.Thread, u.ID+".cancel.removed", order); err != nil {
			return v, fmt.Errorf("ask %s %s of thread %s to end: %w", u.Kind, u.ID, u.Thread, err)
		}
		asked(u)
	}
	for len(f.Uses) > 0 && pause.For(limited, vacateEvery) {
		if f, err = r.Look(ctx, b, Sweep, rows.Hold{}); err != nil { // it looks for no work while the box is in use
			return v, err
		}
	}
	return r.Remove(ctx, b)
}
