package thread

import "strings"

// RunOf returns the run that an entry's id belongs to: <run>.prompt, <run>.end.0 and so on, which only those who act
// for the run may take. ok is false for an id that belongs to no run.
func RunOf(id string) (run string, ok bool) {
	run, _, ok = signalOf(id)
	return run, ok
}

// signalOf splits an id that belongs to a run: what is "prompt" of <run>.prompt, "end" of <run>.end.0.
func signalOf(id string) (run, what string, ok bool) {
	run, rest, _ := strings.Cut(id, ".")
	what, n, numbered := strings.Cut(rest, ".")
	switch what {
	case "running", "started", "prompt":
		ok = !numbered
	case "sandbox": // of a launch's first attempt, and of a later one in another box
		ok = !numbered || len(n) == 12 && strings.Trim(n, "0123456789abcdef") == ""
	case "beat", "waiting", "refused", "asked", "end", "orphan", "push", "sync", "setup", "kept":
		ok = isNumber(n)
	}
	if !ok || !ValidRun(run) {
		return "", "", false
	}
	return run, what, true
}

// isSignal reports whether an id is <run>.<what>, or <run>.<what>.<n>.
func isSignal(id, run, what string) bool {
	of, is, ok := signalOf(id)
	return ok && of == run && is == what
}

// IsClaim reports whether an id is run.<k>, by which the host claims a thread's k-th run. Nobody who acts for one run
// may take it.
func IsClaim(id string) bool {
	k, ok := strings.CutPrefix(id, "run.")
	return ok && isNumber(k)
}

// IsHostID reports whether only hosts give an id: of what they report of a run and its box, of a delegated task, and of
// its result on the parent's thread. Nobody who acts for one run may take it, also not of the run itself.
func IsHostID(id string) bool {
	if IsClaim(id) {
		return true
	}
	if _, what, ok := signalOf(id); ok {
		switch what {
		case "sandbox", "orphan", "push", "sync", "setup", "kept":
			return true
		}
		return false
	}
	for _, of := range []string{".spawn", ".waits"} {
		if task, is := strings.CutSuffix(id, of); is {
			return ValidThread(task)
		}
	}
	if box, is := strings.CutSuffix(id, ".resumed"); is {
		return strings.HasPrefix(box, "sandbox.")
	}
	child, rest, _ := strings.Cut(strings.TrimSuffix(id, ".corrected"), ".")
	run, what, _ := strings.Cut(rest, ".")
	return (what == "finished" || what == "result") && ValidThread(child) && ValidRun(run)
}

// IsReserved reports whether an id is of a member's chat, or of a decision or a reaction of bots.
func IsReserved(id string) bool {
	return strings.HasPrefix(id, "member.") || strings.HasPrefix(id, "d_") || strings.HasPrefix(id, "x_")
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
