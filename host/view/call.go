package view

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// mainArguments are the names of the argument to show of a call in one line, for the tools of all three agents. The
// first one that a call has counts.
var mainArguments = []string{
	"command", "cmd", "path", "file_path", "notebook_path", "pattern", "query", "url", "description", "message",
	"prompt", "skill", "input",
}

// mainArgument returns the argument to show of a call in one line, and whether there are more. Of a patch it is the
// files that the patch changes.
func mainArgument(raw json.RawMessage, d *Diff) (text string, more bool) {
	var args map[string]json.RawMessage
	if json.Unmarshal(raw, &args) != nil {
		return "", len(raw) > 0 && string(raw) != "null"
	}
	for _, name := range mainArguments {
		v, ok := args[name]
		if !ok {
			continue
		}
		var list []string
		if json.Unmarshal(v, &text) != nil && json.Unmarshal(v, &list) == nil {
			text = commandLine(list)
		}
		if text == "" {
			continue
		}
		if d != nil && strings.Contains(text, patchBegin) {
			return strings.Join(d.Paths(), ", "), true
		}
		return text, len(args) > 1
	}
	return "", len(args) > 0
}

// commandLine returns the command of an argument vector: the script where a shell runs one.
func commandLine(argv []string) string {
	if len(argv) == 3 && strings.HasSuffix(argv[0], "sh") && strings.HasPrefix(argv[1], "-") {
		return argv[2]
	}
	return strings.Join(argv, " ")
}

// codexHeader matches the lines that codex up to 0.169.0 puts above the output of a command. Each line is there at
// most once, and the last one is "Output:".
var codexHeader = regexp.MustCompile(`\A(?:(?:Chunk ID: \S*|Wall time: [\d.]+ seconds?|Exit code: -?\d+` +
	`|Process exited with code -?\d+|Process running with session ID \d+|Original token count: \d+` +
	`|Total output lines: \d+)\n){1,8}Output:(?:\n|\z)`)

var (
	codexExit = regexp.MustCompile(`(?m)^(?:Process exited with code|Exit code:) (-?\d+)$`)
	codexWall = regexp.MustCompile(`(?m)^Wall time: ([\d.]+) seconds?$`)
)

// codexPatched is in the result of each patch that codex applied.
const codexPatched = "Success. Updated the following files"

// mostHeader bounds codex's header, in bytes.
const mostHeader = 1 << 10

// dropHeader takes codex's header off a result, and sets what it has: exit status and duration. A patch that a command
// applied has two headers.
func dropHeader(r *Result) {
	header := ""
	for range 2 {
		next := codexHeader.FindString(r.Text[:min(len(r.Text), mostHeader)])
		header, r.Text = header+next, r.Text[len(next):]
	}
	if m := codexExit.FindStringSubmatch(header); m != nil {
		if code, err := strconv.Atoi(m[1]); err == nil {
			r.ExitCode = &code
		}
	}
	if m := codexWall.FindStringSubmatch(header); m != nil {
		if s, err := strconv.ParseFloat(m[1], 64); err == nil && s < 1e9 {
			r.Duration = time.Duration(s * float64(time.Second))
		}
	}
}
