package launch

import (
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
)

// ExitStatus returns the exit status of a program that waits for the run with this id. It is 0 if the run has
// completed, else the agent's own: 128+n for signal n, 1 if the agent's is 0 or unknown. A run that the thread does
// not have is 1.
func ExitStatus(fold *thread.Fold, runID string) int {
	r, _ := fold.Run(runID)
	t := r.Totals
	switch {
	case r.Status == thread.StatusCompleted:
		return 0
	case t == nil:
	case t.ExitCode != nil && *t.ExitCode != 0:
		return *t.ExitCode
	case t.ExitSignal != nil:
		if n, err := outcome.ParseSignal(*t.ExitSignal); err == nil {
			return 128 + n
		}
	}
	return 1
}
