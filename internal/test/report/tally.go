package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// missing are the features of the kernel or the machine for want of which a test may be skipped where $CI is set:
// what stands in the test's reason, and the feature. A skip for another reason fails there.
var missing = []struct{ reason, feature string }{
	{"no v1 freezer", "the freezer of cgroup v1: in a frozen cgroup of v2 KILL works"},
	{"a v1 freezer", "the freezer of cgroup v1: in a frozen cgroup of v2 KILL works"},
	{"a freezer", "a cgroup that the tests may freeze (v1 freezer, or v2)"},
	{"a limit on processes", "a cgroup that the tests may limit in processes (v1 or v2)"},
	{"a limit on memory", "a cgroup that the tests may limit in memory (v1 or v2)"},
	{"a cgroup can't be made here", "a cgroup that the tests may make"},
	{"a small disk can't be mounted here", "mounts: root, or a user namespace"},
	{"a mount namespace can't be made here", "mounts: root, or a user namespace"},
	{"a Docker engine can't run here", "root, mounts and PID namespaces, and Debian's docker.io"},
	{"a root file system of its own can't be made here", "root, mounts, overlayfs and dpkg"},
	{"rpm can't run here", "Debian's rpm"},
	{"busybox can't run here", "Debian's busybox-static"},
	{"as another user", "a second user: root"},
	{"not in the list of accounts", "no feature of the kernel, but of the machine: an account with a name"},
}

// event is a line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of a failed build
	Test       string
	Elapsed    float64
	Output     string
}

// skip is a test that did not run.
type skip struct{ pkg, test, reason string }

// tally collects the events of all commands.
type tally struct {
	w      io.Writer
	output map[[2]string][]string // by package and test, until it ended well
	took   map[string]float64     // seconds by package
	spent  map[string]float64     // processor seconds by package
	bad    map[string]bool        // packages that failed, commands that could not run
	skips  []skip
	passed int
}

func newTally(w io.Writer) *tally {
	return &tally{
		w: w, output: map[[2]string][]string{},
		took: map[string]float64{}, spent: map[string]float64{}, bad: map[string]bool{},
	}
}

// broken notes a command that could not run.
func (t *tally) broken(line string, err error) {
	t.bad[line] = true
	fmt.Fprintf(t.w, "FAIL\t%s: %v\n", line, err)
}

// add takes a line of a command's output.
func (t *tally) add(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		_, _ = t.w.Write(line) // of the go command itself
		return
	}
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(t.w, e.Output)
	case "build-fail":
		t.bad[e.ImportPath] = true
	case "output":
		if f, ok := secondsOf(e.Output); ok && e.Test == "" {
			t.spent[e.Package] += f
			return
		}
		t.output[key] = append(t.output[key], e.Output)
	case "pass", "skip", "fail":
		t.end(key, e)
	}
}

// end takes the end of a test or, where e.Test is empty, of a package.
func (t *tally) end(key [2]string, e event) {
	lines := t.output[key]
	delete(t.output, key)
	switch {
	case e.Test == "":
		t.took[e.Package] += e.Elapsed
		switch e.Action {
		case "pass":
			fmt.Fprintf(t.w, "ok  \t%s\t%.1fs\t%.1f processor seconds\n", e.Package, e.Elapsed, t.spent[e.Package])
		case "fail":
			t.bad[e.Package] = true
			t.unfinished(e.Package)
			fmt.Fprintf(t.w, "%sFAIL\t%s\t%.1fs\n", strings.Join(lines, ""), e.Package, e.Elapsed)
		}
	case e.Action == "fail":
		fmt.Fprint(t.w, strings.Join(lines, ""))
	case e.Action == "skip":
		t.skips = append(t.skips, skip{e.Package, e.Test, reason(lines)})
	default:
		t.passed++
	}
}

// unfinished prints the output of tests that were running when their package's process ended, as in a panic.
func (t *tally) unfinished(pkg string) {
	var keys [][2]string
	for key := range t.output {
		if key[0] == pkg {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b [2]string) int { return cmp.Compare(a[1], b[1]) })
	for _, key := range keys {
		fmt.Fprint(t.w, strings.Join(t.output[key], ""))
		delete(t.output, key)
	}
}

// reason returns the output of a skipped test, without the marks of go test.
func reason(lines []string) string {
	var all []string
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			all = append(all, line)
		}
	}
	return strings.Join(all, " ")
}

// excused returns the missing kernel feature that a reason names, or "".
func excused(reason string) string {
	for _, m := range missing {
		if strings.Contains(reason, m.reason) {
			return m.feature
		}
	}
	return ""
}

// largest returns the packages with the largest of some numbers of seconds, the last part of each name with its number.
func largest(seconds map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(seconds), func(a, b string) int {
		return cmp.Or(cmp.Compare(seconds[b], seconds[a]), cmp.Compare(a, b))
	})
	names = names[:min(len(names), 8)]
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %.0f s", strings.TrimPrefix(name, module), seconds[name])
	}
	return strings.Join(names, ", ")
}

// module begins the names of this module's packages.
const module = "arbe.0sk.ar/runner/"

// summary prints the counts and the packages that took longest, and returns the exit status.
func (t *tally) summary(took time.Duration, ci bool) int {
	all := 0.0
	for _, f := range t.spent {
		all += f
	}
	fmt.Fprintf(t.w, "%d tests passed, %d skipped, in %.0f s, with %.0f s of processor\n",
		t.passed, len(t.skips), took.Seconds(), all)
	for _, what := range []struct {
		name    string
		seconds map[string]float64
	}{{"the longest", t.took}, {"the dearest, by processor", t.spent}} {
		if list := largest(what.seconds); list != "" {
			fmt.Fprintf(t.w, "%s: %s\n", what.name, list)
		}
	}
	status := 0
	for _, s := range t.skips {
		feature := excused(s.reason)
		fmt.Fprintf(t.w, "skipped: %s %s: %s\n", s.pkg, s.test, s.reason)
		if ci && feature == "" {
			fmt.Fprintln(t.w, "FAIL\ta skip that no missing kernel feature explains")
			status = 1
		}
	}
	if len(t.bad) > 0 {
		var names []string
		for name := range t.bad {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(t.w, "FAIL\t%s\n", strings.Join(names, "\nFAIL\t"))
		status = 1
	}
	return status
}
