package outcome_test

import (
	"fmt"

	"arbe.0sk.ar/runner/outcome"
)

// The verdict follows from two facts: the run's last turn in the session, and how the agent's process ended.
func ExampleDecide() {
	done := outcome.Turn{Lines: 7, Understood: 7, State: outcome.Ended, StopReason: outcome.StopStop}
	working := outcome.Turn{Lines: 5, Understood: 5, State: outcome.Unfinished, StopReason: outcome.StopToolUse}
	for _, facts := range []outcome.Facts{
		{Turn: done, Exit: outcome.ExitCode(0)},
		{Turn: working, Exit: outcome.Signalled(9), OOM: true},
		{Turn: working, Exit: outcome.ExitCode(143), Action: outcome.ActionCancel, Why: "requested on the thread"},
		{Exit: outcome.ExitCode(0)}, // no output at all
	} {
		v := outcome.Decide(facts)
		fmt.Println(v.Outcome, v.ErrorClass, v.Reason, v.ExitStatus())
	}
	// Output:
	// completed  ended_well 0
	// failed oom bad_exit 137
	// cancelled  cancelled 143
	// orphaned  no_output 1
}
