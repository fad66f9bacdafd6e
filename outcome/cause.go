package outcome

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	// errorLine is how programs begin the line with their error: "Error: …", "TypeError [ERR_X]: …", "error: …".
	errorLine = regexp.MustCompile(`^(?i:uncaught )?(?:[\w.]*(?i:error|exception)|fatal|panic)(?: \[\w+\])?: \S`)
	// escapes are the terminal's escape sequences.
	escapes = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))`)
	// noise are lines beside an error that are no error: stack frames, places in a source, carets below a source's
	// line, warnings, and what codex prints whenever it starts.
	noise = regexp.MustCompile(`^(?:at .+|(?:file:)?/\S*|[\^~]+|\(?(?i:warning|use .node|node:\d+\)).*|` +
		`Reading additional input from stdin\.\.\.|[{}\[\]),;]+|\w+: (?:'[^']*'|-?\d+),?)$`)
	// nodeBanner is the last line of a Node that crashed.
	nodeBanner = regexp.MustCompile(`^Node\.js v(\d+)\.(\d+)\.(\d+)`)
)

// Cause returns the line of a process's stderr that names the reason of its end: the last one that begins with an
// error's name, else the last one that is no stack frame, no path, no warning, no banner and no heading; "" if there is
// none.
func Cause(stderr string) string {
	lines := strings.Split(escapes.ReplaceAllString(stderr, ""), "\n")
	last := ""
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimSpace(lines[i])
		if errorLine.MatchString(line) {
			return line
		}
		heading := strings.HasSuffix(line, ":") // of paths, mostly
		if last == "" && !heading && !noise.MatchString(line) && !nodeBanner.MatchString(line) {
			last = line
		}
	}
	return last
}

// oldNode returns what is wrong with the Node that a crashed agent ran on; "" if it is at least the version least, or
// unknown. A Node that crashes prints its version.
func oldNode(stderr, least string) string {
	for line := range strings.Lines(stderr) {
		m := nodeBanner.FindStringSubmatch(strings.TrimSpace(line))
		if m != nil && least != "" && older(m[1:], strings.Split(least, ".")) {
			return fmt.Sprintf("it needs Node %s or newer, and runs on Node %s", least, strings.Join(m[1:], "."))
		}
	}
	return ""
}

// older reports whether version a comes before version b; both are numbers.
func older(a, b []string) bool {
	for i := range b {
		x, _ := strconv.Atoi(a[i]) // digits
		y, _ := strconv.Atoi(b[i])
		if x != y {
			return x < y
		}
	}
	return false
}
