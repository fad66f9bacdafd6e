package session

import (
	"encoding/json"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// Claude is the dialect of claude-code, as 2.1.329 writes it: user and assistant lines in a chain of uuids, one line
// for each block of a reply, all else that claude keeps (attachments inside the chain, what it has asked the API for,
// its cost) beside them. A file has no header; its name is the session's id.
var Claude = Dialect{
	Harness: "claude-code", Prefix: "claude", Decode: checked(scanClaude), Outline: scanClaude, Filler: claudeFiller,
	Turn: claudeTurn, Amend: claudeLeaf,
}

// claudeTypes are the line types of claude without part in a turn: those of 2.1.329 and of versions before it.
var claudeTypes = set(
	"system", "attachment", "queue-operation", "api-request", "api-request-shape", "api-request-blob",
	"last-prompt", "atis-latch", "tools-used", "cost-state", "mode", "summary", "file-history-snapshot",
	"custom-title", "ai-title", "agent-name", "agent-color", "agent-setting", "tag", "progress", "pr-link",
	"permission-mode", "worktree-state", "content-replacement", "marble-origami-commit", "marble-origami-snapshot",
)

// claudeTags begin the user lines that claude injects, in files that don't mark them.
var claudeTags = []string{
	"<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>", "<command-name>",
	"<command-message>", "<bash-input>", "<bash-stdout>", "<system-reminder>", "<task-notification>",
	"<user-memory-input>",
}

// scanClaude decodes a line that is JSON.
func scanClaude(line []byte) Entry {
	if !objectLine(line) {
		return textEntry
	}
	f := fields(line)
	e := Entry{
		Type: str(f["type"]), ID: str(f["uuid"]), Parent: str(f["parentUuid"]), SessionID: str(f["sessionId"]),
		Time: stamp(f["timestamp"]),
		Side: yes(f["isSidechain"]),
	}
	e.Known = claudeTypes[e.Type]
	switch e.Type {
	case "user", "assistant":
		if message := f["message"]; jsonscan.IsObject(message) {
			e.Known = true
			if e.Type == "user" {
				claudeUser(&e, f, fields(message))
			} else {
				claudeAssistant(&e, f, fields(message))
			}
		}
	case "system":
		if sub := str(f["subtype"]); sub != "" {
			e.Type = sub
		}
		// One that is refused; an output begins with a tag.
		e.Command = e.Type == "local_command" && strings.HasPrefix(str(f["content"]), "/")
	}
	if e.Side { // it decides nothing here
		e.Mark = NoMark
	}
	return e
}

func yes(raw json.RawMessage) bool { return string(raw) == "true" }

// claudeUser decodes a line that goes to the model: a tool's result, what somebody asked for, or what claude has put
// in.
func claudeUser(e *Entry, f, m map[string]json.RawMessage) {
	var answer map[string]json.RawMessage
	jsonscan.Elements(m["content"], func(b []byte) {
		if block := fields(b); answer == nil && str(block["type"]) == "tool_result" {
			answer = block
		}
	})
	if answer != nil {
		e.Kind, e.Mark, e.ToolCallID, e.IsError = ToolResult, Answer, str(answer["tool_use_id"]),
			yes(answer["is_error"])
		e.speak(claudeContent(answer["content"]))
		return
	}
	content := claudeContent(m["content"])
	text := strings.TrimSpace(content.text())
	switch {
	case strings.HasPrefix(text, "[Request interrupted by user"):
		e.Mark, e.StopReason = Abort, "aborted"
	case yes(f["isMeta"]), yes(f["isCompactSummary"]), yes(f["isVisibleInTranscriptOnly"]):
	case str(f["promptSource"]) == "system":
	case f["promptSource"] == nil && slices.ContainsFunc(claudeTags, func(tag string) bool {
		return strings.HasPrefix(text, tag)
	}):
		e.Command = strings.HasPrefix(text, "<command-")
	default:
		e.Kind, e.Mark, e.Cwd = User, Prompt, str(f["cwd"])
		e.speak(content)
	}
}

// claudeAssistant decodes one block of a reply. In the file, unlike on stdout, the reply's stop_reason stands with
// each.
func claudeAssistant(e *Entry, f, m map[string]json.RawMessage) {
	e.Kind, e.Provider, e.Model = Assistant, "anthropic", str(m["model"])
	e.Reply, e.Usage = str(m["id"]), claudeUsage(m["usage"])
	content := claudeContent(m["content"])
	switch reason := str(m["stop_reason"]); {
	case yes(f["isApiErrorMessage"]):
		e.Mark, e.StopReason, e.ErrorMessage = Failure, "error", claudeError(content.text(), str(f["error"]))
	case yes(f["isAbortedMidStream"]):
		e.Mark, e.StopReason = Abort, "aborted"
	case reason == "refusal":
		e.Mark, e.StopReason, e.ErrorMessage = Failure, "error", "the model refused"
	case reason == "end_turn", reason == "stop_sequence":
		e.Mark, e.StopReason = End, "stop"
	case reason == "max_tokens": // claude asks for the rest
		e.Mark, e.StopReason = Output, "length"
	case reason == "tool_use":
		e.Mark, e.StopReason = Output, "toolUse"
	default:
		e.Mark, e.StopReason = Output, reason
	}
	if e.Model == "<synthetic>" { // claude's own words
		e.Provider, e.Model, e.Usage = "", "", nil
	}
	e.speak(content)
}

// claudeError returns the message of a failure, with its kind.
func claudeError(text, kind string) string {
	if kind == "" || kind == "unknown" {
		return text
	}
	return text + " (" + kind + ")"
}

// claudeContent returns a message's content, or that of a tool's result.
func claudeContent(raw []byte) blocks {
	if jsonscan.IsString(raw) {
		return blocks{textBlock(jsonscan.String(raw))}
	}
	var content blocks
	jsonscan.Elements(raw, func(b []byte) {
		f := fields(b)
		switch typ := str(f["type"]); typ {
		case "text":
			content = append(content, textBlock(str(f["text"])))
		case "thinking":
			text := str(f["thinking"])
			content = append(content, block{Type: "thinking", Thinking: &text, ThinkingSignature: str(f["signature"])})
		case "tool_use", "server_tool_use":
			content = append(content, callBlock(str(f["id"]), str(f["name"]), f["input"]))
		case "image":
			source := fields(f["source"])
			if data := str(source["data"]); data != "" {
				content = append(content, block{Type: "image", MimeType: str(source["media_type"]), Data: data})
			} else {
				content = append(content, textBlock("[image: "+str(source["url"])+"]"))
			}
		case "redacted_thinking": // encrypted for the provider
		default:
			content = append(content, textBlock("["+typ+"]"))
		}
	})
	return content
}

func claudeUsage(raw []byte) json.RawMessage {
	var u struct {
		Input      int64 `json:"input_tokens"`
		CacheWrite int64 `json:"cache_creation_input_tokens"`
		CacheRead  int64 `json:"cache_read_input_tokens"`
		Output     int64 `json:"output_tokens"`
	}
	if !jsonscan.IsObject(raw) || json.Unmarshal(raw, &u) != nil {
		return nil
	}
	return usage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite}.json()
}
