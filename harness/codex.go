package harness

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/session"
)

// codex is @openai/codex in exec mode, with JSON on stdout.
//
// It makes its session file itself and chooses the session's id, a version 7 UUID, which its first line on stdout has.
var codex = Spec{
	Agent: catalog.Codex,
	// The npm link is a Node script that stays as codex's parent. Killed, it leaves codex and its tools running.
	Native:   []string{"@openai/codex-linux-" + arch() + "/vendor/*/bin/codex"},
	Version:  func(binary string) string { return npmVersion(binary, "@openai/codex") },
	Versions: []string{"0.169.0"},
	Dialect:  session.Codex,
	Report:   codexReport,
	Answer:   codexAnswer,
	// On INT codex ends its tools, records the abort and exits with 1. On TERM it dies at once, its tools live on and
	// nothing is recorded.
	Stop: syscall.SIGINT,
	// 0.169.0 fails with input_too_large beyond it.
	MostPrompt: 1 << 20,
	// codex waits for an unreachable provider without a limit.
	Unreachable: 10 * time.Minute,
	SessionFile: func(b Box, id string, at time.Time) string {
		at = at.Local() // as codex names its own
		name := "rollout-" + at.Format("2006-01-02T15-04-05") + "-" + id + ".jsonl"
		return filepath.Join(codexHome(b), "sessions", at.Format("2006/01/02"), name)
	},
	FindSession: func(b Box, id string) string {
		return newest(glob(filepath.Join(codexHome(b), "sessions"), "*/*/*/rollout-*-"+id+".jsonl"))
	},
	PrintsID:  true,
	Subagents: codexSubagents,
	// Without its home folder codex exits at once.
	Prepare: func(b Box) error { return os.MkdirAll(codexHome(b), 0o700) },
	Command: codexCommand,
	Live:    &codexLive,
}

// codexHome is the folder of codex's configuration and sessions.
func codexHome(b Box) string {
	if dir := b.Getenv("CODEX_HOME"); dir != "" {
		return dir
	}
	return filepath.Join(Home(b.Getenv), ".codex")
}

// codexQuiet are the settings that make codex use the network for itself.
var codexQuiet = []string{
	"check_for_update_on_startup", "analytics.enabled", "features.plugins", "features.remote_plugin", "features.apps",
}

// codexSettings returns the arguments that keep codex from using the network for itself.
func codexSettings(b Box) (args []string) {
	config, _ := os.ReadFile(filepath.Join(codexHome(b), "config.toml")) // a missing file is an empty one
	for _, key := range codexQuiet {
		_, last, dotted := strings.Cut(key, ".")
		if !dotted {
			last = key
		}
		if set, err := regexp.Match(`(?m)^[^#\n]*\b`+last+`"?\s*=`, config); err == nil && set && last != "enabled" {
			continue // the box's own setting counts
		}
		args = append(args, "-c", key+"=false")
	}
	return args
}

func codexCommand(b Box, t Task) Invocation {
	var args []string
	if !t.Person {
		args = append(args, "exec")
	}
	if t.Resume {
		args = append(args, "resume")
	}
	if !t.Person {
		args = append(args, "--json", "--skip-git-repo-check")
	}
	args = append(args, "--dangerously-bypass-approvals-and-sandbox")
	args = append(args, codexSettings(b)...)
	if t.Model != "" {
		args = append(args, "--model", t.Model)
	}
	args = append(append(args, t.Args...), "--")
	if t.Resume {
		args = append(args, t.ID)
	}
	switch {
	case t.Prompt == "":
		return Invocation{Args: args}
	case fits(t.Prompt) && t.Prompt != "-":
		return Invocation{Args: append(args, t.Prompt)}
	}
	return Invocation{Args: append(args, "-"), Stdin: t.Prompt} // codex takes it unchanged
}

// codexReport parses a line of exec --json. Only the session records that a turn ended well. An error event ends no
// turn: codex retries.
func codexReport(line []byte) (s Report) {
	var e struct {
		Type     string
		ThreadID string `json:"thread_id"`
		Message  string
		Error    struct{ Message string }
	}
	if json.Unmarshal(line, &e) != nil {
		return s
	}
	switch e.Type {
	case "thread.started":
		s.SessionID = e.ThreadID
	case "turn.failed":
		s.Mark, s.StopReason, s.Message = session.Failure, "error", e.Error.Message
		if strings.Contains(s.Message, "max_output_tokens") {
			s.StopReason = "length"
		}
	case "error":
		s.Offline = strings.Contains(e.Message, "waiting for network")
	}
	return s
}

// codexAnswer takes the replies of a turn, and its end.
func codexAnswer(line []byte) (text string, final bool) {
	var e struct {
		Type string
		Item struct{ Type, Text string }
	}
	if json.Unmarshal(line, &e) != nil {
		return "", false
	}
	if e.Type == "item.completed" && e.Item.Type == "agent_message" {
		text = e.Item.Text
	}
	return text, e.Type == "turn.completed"
}

// codexSubagents finds the rollouts that name the session as their root. No other session is their root later.
func codexSubagents(b Box, s Session, others map[string]bool) (found []Session) {
	for _, file := range glob(filepath.Join(codexHome(b), "sessions"), "*/*/*/rollout-*.jsonl") {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		if others[file] || file == s.Path || len(name) < 36 {
			continue
		}
		id := name[len(name)-36:]
		if s.ID == "" || id == s.ID {
			others[file] = true
			continue
		}
		switch root, ok := codexRoot(file); {
		case ok && root == s.ID:
			found = append(found, Session{file, id})
		case ok:
			others[file] = true
		}
	}
	return found
}

// codexRoot returns the session that a rollout belongs to; false while it has no first line.
func codexRoot(file string) (root string, ok bool) {
	reader := session.NewReader(file, session.Position{})
	defer reader.Close() // read only: nothing to lose
	line, err := reader.Next()
	if err != nil {
		return "", false
	}
	var meta struct {
		Payload struct {
			SessionID string `json:"session_id"`
			Parent    string `json:"parent_thread_id"`
		}
	}
	if json.Unmarshal(bytes.TrimSpace(line.Data), &meta) != nil {
		return "", true
	}
	if meta.Payload.SessionID == "" {
		return meta.Payload.Parent, true
	}
	return meta.Payload.SessionID, true
}

// glob returns the files in dir that match pattern. dir is no pattern.
func glob(dir, pattern string) (paths []string) {
	names, _ := fs.Glob(os.DirFS(dir), pattern)
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// newest returns the file that was modified last; "" for no files.
func newest(files []string) (path string) {
	var last time.Time
	for _, file := range files {
		if st, err := os.Stat(file); err == nil && (path == "" || st.ModTime().After(last)) {
			path, last = file, st.ModTime()
		}
	}
	return path
}
