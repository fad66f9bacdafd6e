package cmdline

import (
	"fmt"
	"time"
)

// Mark returns the mark of a run's or a thread's state, the same one in every list, log and view of a terminal, and its
// style, an argument of the terminal's SGR sequence. A state is a Status constant of package thread, an Outcome of
// package outcome, or waiting, silent or dead. It returns "?" for another one.
func Mark(state string) (mark, style string) {
	switch state {
	case "idle":
		return "·", styleDim
	case "running":
		return "●", styleCyan
	case "waiting":
		return "○", styleCyan
	case "silent":
		return "●", StyleYellow
	case "dead":
		return "!", StyleRed
	case "completed":
		return "✔", StyleGreen
	case "failed", "orphaned":
		return "✘", StyleRed
	case "cancelled":
		return "-", StyleYellow
	}
	return "?", styleDim
}

// Age returns how long ago a time was, in at most 4 characters.
func Age(t, now time.Time) string {
	d := max(0, now.Sub(t))
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 1000*day:
		return fmt.Sprintf("%dd", d/day)
	}
	return fmt.Sprintf("%dy", d/(365*day))
}
