package harness

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

// claude is @anthropic-ai/claude-code in print mode, with JSON on stdout.
//
// It makes its session file itself, in a folder named after the working directory, under the id that the runner
// chooses.
var claude = Spec{
	Agent: catalog.Claude,
	// If npm runs no install scripts, its link leads to a text file with an error message.
	Native: []string{
		"@anthropic-ai/claude-code-linux-" + arch() + "/claude",
		"@anthropic-ai/claude-code-linux-" + arch() + "-musl/claude",
	},
	Version:  func(binary string) string { return npmVersion(binary, "@anthropic-ai/claude-code") },
	Versions: []string{"2.1.329"},
	Dialect:  session.Claude,
	Report:   claudeReport,
	Answer:   claudeAnswer,
	// A complete reply is not the end of the turn: hooks and background work may follow. Interrupted then, claude exits
	// with 0 and prints no result.
	EndsOnStdout: true,
	// On INT claude ends its tools and records the interruption. It exits with 0. On TERM it records less.
	Stop: syscall.SIGINT,
	SessionFile: func(b Box, id string, _ time.Time) string {
		return filepath.Join(claudeHome(b), "projects", "arbe", id+".jsonl") // claude searches all folders in projects
	},
	FindSession: func(b Box, id string) string {
		return newest(glob(filepath.Join(claudeHome(b), "projects"), "*/"+id+".jsonl"))
	},
	Subagents: claudeSubagents,
	Command:   claudeCommand,
	Live:      &claudeLive,
}

// claudeHome is the folder of claude's configuration and sessions.
func claudeHome(b Box) string {
	if dir := b.Getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		return dir
	}
	return filepath.Join(Home(b.Getenv), ".claude")
}

func claudeCommand(_ Box, t Task) Invocation {
	// Without IS_SANDBOX root may not skip permissions. The other variable restricts claude to its provider's network.
	do := Invocation{Env: []string{"IS_SANDBOX=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}}
	if !t.Person {
		do.Args = append(do.Args, "-p", "--output-format", "stream-json", "--verbose")
	}
	do.Args = append(do.Args, "--dangerously-skip-permissions")
	if t.Resume {
		do.Args = append(do.Args, "--resume", t.ID)
	} else {
		do.Args = append(do.Args, "--session-id", t.ID)
	}
	if t.Model != "" {
		do.Args = append(do.Args, "--model", t.Model)
	}
	do.Args = append(do.Args, t.Args...)
	switch {
	case t.Prompt == "":
	case fits(t.Prompt):
		do.Args = append(do.Args, "--", t.Prompt)
	default:
		do.Stdin = t.Prompt // claude takes it unchanged
	}
	return do
}

// claudeReport parses a line of stream-json. A result's subtype is "success" for most failures, too.
func claudeReport(line []byte) (s Report) {
	var e struct {
		Type           string
		Subtype        string
		SessionID      string `json:"session_id"`
		IsError        bool   `json:"is_error"`
		TerminalReason string `json:"terminal_reason"`
		Result         string
		Errors         []string
	}
	if json.Unmarshal(line, &e) != nil {
		return s
	}
	switch {
	case e.Type == "system" && e.Subtype == "init":
		s.SessionID, s.Mark = e.SessionID, session.Begin // also of a further turn, after background work has ended
	case e.Type != "result":
	case strings.HasPrefix(e.TerminalReason, "aborted"):
		s.Mark, s.StopReason = session.Abort, outcome.StopAborted
	case e.IsError:
		s.Mark, s.StopReason, s.Message = session.Failure, outcome.StopError, e.Result
		if s.Message == "" {
			s.Message = strings.Join(e.Errors, "; ")
		}
		if strings.HasPrefix(e.Subtype, "error_max_") || e.Subtype == "error_during_execution" {
			s.Class = outcome.ClassExit // its own limits, not the provider's
		}
	default:
		s.Mark, s.StopReason = session.End, outcome.StopStop
	}
	return s
}

// claudeAnswer takes the answer from a result. There may be more than one: background work can begin another turn.
func claudeAnswer(line []byte) (text string, final bool) {
	var e struct {
		Type    string
		IsError bool `json:"is_error"`
		Result  string
	}
	if json.Unmarshal(line, &e) != nil || e.Type != "result" || e.IsError {
		return "", false
	}
	return e.Result, true
}

// claudeSubagents finds the files in the folder beside the session file that is named after the session.
func claudeSubagents(_ Box, s Session, _ map[string]bool) (found []Session) {
	if s.ID == "" {
		return nil
	}
	dir := filepath.Join(filepath.Dir(s.Path), s.ID, "subagents")
	for _, pattern := range []string{"*.jsonl", "*/*.jsonl", "*/*/*.jsonl"} {
		for _, file := range glob(dir, pattern) {
			found = append(found, Session{file, strings.TrimSuffix(filepath.Base(file), ".jsonl")})
		}
	}
	return found
}
