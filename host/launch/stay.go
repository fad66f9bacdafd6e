package launch

import (
	"context"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/sandbox"
)

// variableLimit is the runner's variable with the limit of its run.
const variableLimit = "ARBE_PI_TIMEOUT"

// longest returns how long the task's run may last.
func (t Task) longest() time.Duration {
	if t.Limit > 0 {
		return t.Limit
	}
	if d, err := time.ParseDuration(t.Env[variableLimit]); err == nil && d > 0 {
		return d
	}
	return recipe.MaxRun
}

// autoStop returns the AutoStop of the task's box. One that could end the run is an error.
func (t Task) autoStop() (time.Duration, error) {
	least := recipe.LeastAutoStop(t.longest())
	switch {
	case t.Box.AutoStop == 0:
		return least, nil
	case t.Box.AutoStop < least:
		return 0, fmt.Errorf("limits.autostop %v: want at least %v: the run may last %v", t.Box.AutoStop, least,
			t.longest())
	}
	return t.Box.AutoStop, nil
}

// outlaster is a box that its provider may stop while a run or a command works in it.
type outlaster interface {
	// Outlast has the box stay for at least d without a call to it.
	Outlast(ctx context.Context, d time.Duration) error
}

// Outlast has a box that was made for another run or command stay for one that may last for the time d.
func Outlast(ctx context.Context, box sandbox.Sandbox, d time.Duration) error {
	o, is := box.(outlaster)
	if !is {
		return nil
	}
	if err := o.Outlast(ctx, recipe.LeastAutoStop(d)); err != nil {
		return fmt.Errorf("have the sandbox %s stay for %v: %w", box.Ref(), d, err)
	}
	return nil
}
