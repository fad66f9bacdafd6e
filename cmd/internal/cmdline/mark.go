package cmdline

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
