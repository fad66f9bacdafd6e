package view

import (
	"regexp"
	"strconv"
	"time"
)

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
