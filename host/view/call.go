package view

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// mainArguments are the names of the argument to show of a call in one line, for the tools of all three agents. The
// first one that a call has counts.
var mainArguments = []string{
	"command", "cmd", "path", "file_path", "notebook_path", "pattern", "query", "url", "description", "message",
	"prompt", "skill", "input", "task", "text", "name",
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

// toolDelegate is the tool by which a bot delegates a task. The id of the task's thread is the key of the call.
const toolDelegate = "delegate_task"

// callKey returns the key of the i-th call of a bot's round, whose entry has the id round; "" for another entry's id.
func callKey(round string, i int) string {
	reaction, number, _ := strings.Cut(round, ".")
	n, err := strconv.Atoi(number)
	if err != nil {
		return ""
	}
	if key := thread.CallKey(reaction, n, i); thread.IsCallKey(key) {
		return key
	}
	return ""
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

// commandEnd matches the beginning of the result of a bot's command that has an exit code.
var commandEnd = regexp.MustCompile(`\Aexit (\d{1,3}), [\d.]+ s`)

// commandExit returns the exit code of a bot's command by the result of the tool; nil where it is not known.
func commandExit(tool, text string) *int {
	m := commandEnd.FindStringSubmatch(text[:min(len(text), mostHeader)])
	if tool != "run_command" || m == nil {
		return nil
	}
	code, err := strconv.Atoi(m[1])
	if err != nil {
		return nil
	}
	return &code
}
