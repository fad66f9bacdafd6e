package thread

import "strings"

// RunOf returns the run that an entry's id belongs to: <run>.prompt, <run>.end.0 and so on, which only those who act
// for the run may take. ok is false for an id that belongs to no run.
func RunOf(id string) (run string, ok bool) {
	run, rest, _ := strings.Cut(id, ".")
	what, n, numbered := strings.Cut(rest, ".")
	switch what {
	case "running", "sandbox", "started", "prompt":
		ok = !numbered
	case "beat", "waiting", "refused", "asked", "end", "orphan", "push", "sync", "setup", "kept":
		ok = isNumber(n)
	}
	if !ok || !ValidRun(run) {
		return "", false
	}
	return run, true
}

// IsClaim reports whether an id is run.<k>, by which the host claims a thread's k-th run. Nobody who acts for one run
// may take it.
func IsClaim(id string) bool {
	k, ok := strings.CutPrefix(id, "run.")
	return ok && isNumber(k)
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
