package session

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// Codex is the dialect of codex, as 0.169.0 writes it: {timestamp, ordinal, type, payload} in the "paginated" form, the
// same without ordinal in the older one. The conversation is in response_item lines, one for each part of a reply; the
// end of a turn is in event_msg lines. Lines have no ids.
var Codex = Dialect{
	Harness: "codex", Prefix: "codex", Decode: checked(scanCodex), Outline: scanCodex,
	Header: codexHeader, Turn: codexTurn,
}

// codexTypes are the line types of codex 0.169.0 without part in a turn.
var codexTypes = set(
	"world_state", "token_usage_record", "turn_context", "compacted", "inter_agent_communication",
	"inter_agent_communication_metadata",
)

// codexItems are the types of response_items that are not decoded below.
var codexItems = set(
	"ghost_snapshot", "compaction", "compaction_summary", "compaction_trigger", "context_compaction", "other",
)

// codexEvents are the types of event_msgs that are not decoded below: 0.169.0's own, and those of the older form.
var codexEvents = set(
	"item_started", "item_completed", "token_count", "thread_settings_applied", "user_message", "agent_message",
	"agent_reasoning", "agent_reasoning_raw_content", "agent_reasoning_section_break", "context_compacted",
	"entered_review_mode", "exited_review_mode", "thread_rolled_back", "thread_name_updated", "thread_goal_updated",
	"error", "stream_error", "warning", "exec_command_begin", "exec_command_end", "patch_apply_begin",
	"patch_apply_end", "mcp_tool_call_begin", "mcp_tool_call_end", "web_search_begin", "web_search_end",
	"view_image_tool_call", "image_generation_begin", "image_generation_end", "dynamic_tool_call_request",
	"dynamic_tool_call_response", "background_event", "plan_update", "turn_diff", "undo_started", "undo_completed",
	"model_reroute", "hook_started", "hook_completed", "session_configured", "collab_agent_spawn_begin",
	"collab_agent_spawn_end", "collab_agent_interaction_begin", "collab_agent_interaction_end",
	"collab_waiting_begin", "collab_waiting_end", "collab_close_begin", "collab_close_end", "collab_resume_begin",
	"collab_resume_end", "sub_agent_activity",
)

// scanCodex decodes a line that is JSON.
func scanCodex(line []byte) Entry {
	if !objectLine(line) {
		return textEntry
	}
	top := fields(line)
	e := Entry{Type: str(top["type"]), Time: stamp(top["timestamp"])}
	if n, err := strconv.Atoi(string(top["ordinal"])); err == nil {
		e.Next = n + 1
	}
	p := fields(top["payload"])
	switch e.Type {
	case "session_meta":
		if e.SessionID = str(p["id"]); e.SessionID != "" {
			e.Kind, e.Known, e.Cwd = Header, true, str(p["cwd"])
			e.Provider, e.Began = str(p["model_provider"]), stamp(p["timestamp"])
		}
	case "event_msg":
		e.Type = str(p["type"])
		codexEvent(&e, p)
	case "response_item":
		e.Type = str(p["type"])
		codexItem(&e, p)
	default:
		if e.Known = codexTypes[e.Type]; e.Known {
			e.Cwd, e.Model = str(p["cwd"]), str(p["model"]) // of a turn_context
		}
		if e.Type == "token_usage_record" {
			e.Usage = codexUsage(p["usage"])
		}
	}
	return e
}

// codexEvent decodes how a turn goes.
func codexEvent(e *Entry, p map[string]json.RawMessage) {
	e.Known = true
	switch e.Type {
	case "task_started", "turn_started":
		e.Mark = Begin
	case "task_complete", "turn_complete":
		e.Mark, e.StopReason = End, "stop"
		if failed := p["error"]; jsonscan.IsObject(failed) {
			e.Mark, e.StopReason, e.ErrorMessage = Failure, "error", codexError(failed)
			if strings.Contains(e.ErrorMessage, "max_output_tokens") {
				e.StopReason = "length"
			}
		}
	case "turn_aborted":
		e.Mark, e.StopReason, e.ErrorMessage = Abort, "aborted", str(p["reason"])
	default:
		e.Known = codexEvents[e.Type]
	}
}

// codexError returns the message of a failure, with its kind if that adds anything.
func codexError(raw []byte) string {
	failed := fields(raw)
	text, info := str(failed["message"]), failed["codex_error_info"]
	kind := str(info)
	jsonscan.Members(info, func(name, v []byte) {
		kind = string(name)
		if status := fields(v)["http_status_code"]; len(status) > 0 && string(status) != "null" {
			kind += " " + string(status)
		}
	})
	if kind == "" || kind == "other" {
		return text
	}
	return text + " (" + kind + ")"
}

// codexItem decodes a part of the conversation.
func codexItem(e *Entry, p map[string]json.RawMessage) {
	e.Known = true
	call := func(name string, arguments []byte) {
		e.Kind, e.Mark, e.StopReason = Assistant, Output, "toolUse"
		id := cmp.Or(str(p["call_id"]), str(p["id"]))
		e.speak(blocks{callBlock(id, name, arguments)})
	}
	result := func(content blocks) {
		e.Kind, e.Mark, e.ToolCallID = ToolResult, Answer, str(p["call_id"])
		e.speak(content)
	}
	switch e.Type {
	case "message":
		codexMessage(e, p)
	case "reasoning":
		e.Mark = Output
		if text := codexText(p["summary"]) + codexText(p["content"]); text != "" {
			e.Kind = Assistant
			e.speak(blocks{{Type: "thinking", Thinking: &text}})
		}
	case "function_call":
		call(str(p["name"]), []byte(str(p["arguments"])))
	case "custom_tool_call":
		call(str(p["name"]), p["input"])
	case "local_shell_call":
		call("local_shell", p["action"])
	case "tool_search_call":
		call("tool_search", p["arguments"])
	case "function_call_output", "custom_tool_call_output", "local_shell_call_output":
		content, failed := codexOutput(p["output"])
		e.IsError = failed
		result(content)
	case "tool_search_output":
		result(blocks{textBlock(string(p["tools"]))})
	case "web_search_call", "image_generation_call": // the provider's own tools, which answer themselves
		e.Mark = Output
	default:
		e.Known = codexItems[e.Type]
	}
}

// codexMessage decodes a message. A message of the model does not end the turn: an event does.
func codexMessage(e *Entry, p map[string]json.RawMessage) {
	role := str(p["role"])
	content := codexContent(p["content"])
	e.Type = role
	switch role {
	case "assistant":
		e.Kind, e.Mark, e.StopReason = Assistant, Output, "stop"
		if str(p["status"]) == "incomplete" {
			e.StopReason = "length"
		}
		e.speak(content)
	case "user":
		if codexInjected(p, content) {
			return
		}
		e.Kind, e.Mark = User, Prompt
		e.speak(content)
	case "developer", "system":
	default:
		e.Known = false
	}
}

// codexTags begin the user messages that codex injects, in files that don't mark them.
var codexTags = []string{
	"<environment_context>", "<user_instructions>", "<turn_aborted>", "<skill>", "<skills_instructions>",
	"<user_shell_command>", "<subagent_notification>",
	"<permissions instructions>", "<collaboration_mode>", "<INSTRUCTIONS>", "# AGENTS.md instructions",
}

// codexInjected reports whether codex itself wrote a user message.
func codexInjected(p map[string]json.RawMessage, content blocks) bool {
	if kinds := fields(p["internal_chat_message_metadata_passthrough"])["content_item_kinds"]; len(kinds) > 0 {
		real := false
		jsonscan.Elements(kinds, func(kind []byte) { real = real || strings.HasPrefix(str(kind), "user.") })
		return !real
	}
	text := strings.TrimSpace(content.text())
	return slices.ContainsFunc(codexTags, func(tag string) bool { return strings.HasPrefix(text, tag) })
}

// codexContent returns the content of a message or of a result.
func codexContent(raw []byte) blocks {
	if jsonscan.IsString(raw) {
		return blocks{textBlock(jsonscan.String(raw))}
	}
	var content blocks
	jsonscan.Elements(raw, func(item []byte) {
		f := fields(item)
		switch {
		case str(f["type"]) == "input_image":
			content = append(content, imageBlock(str(f["image_url"])))
		case jsonscan.IsString(f["text"]):
			content = append(content, textBlock(str(f["text"])))
		case jsonscan.IsString(f["refusal"]):
			content = append(content, textBlock(str(f["refusal"])))
		}
	})
	return content
}

// codexText returns the text in a list of summaries.
func codexText(raw []byte) string { return codexContent(raw).text() }

// codexExit matches a command's exit status in the output that codex gives the model.
var codexExit = regexp.MustCompile(`(?m)^(?:Process exited with code|Exit code:) (-?\d+)$`)

// codexOutput decodes a tool's result: a text, a list of items, or an object with the text in it. It failed where the
// text reports a failure: codex has no other mark for it.
func codexOutput(raw []byte) (content blocks, failed bool) {
	if jsonscan.IsObject(raw) {
		f := fields(raw)
		return codexContent(f["content"]), string(f["success"]) == "false"
	}
	content = codexContent(raw)
	text := content.text()
	if strings.HasPrefix(text, "{") { // what the shell tool of older versions gave
		if f := fields([]byte(text)); json.Valid([]byte(text)) && jsonscan.IsObject(f["metadata"]) {
			code := fields(f["metadata"])["exit_code"]
			return content, len(code) > 0 && string(code) != "0"
		}
	}
	head := text[:min(len(text), 1<<10)] // above the command's own output
	if i := strings.Index(head, "\nOutput:"); i >= 0 {
		head = head[:i]
	}
	code := codexExit.FindStringSubmatch(head)
	return content, code != nil && code[1] != "0" || text == "aborted" || strings.HasPrefix(text, "aborted by user")
}

func codexUsage(raw []byte) json.RawMessage {
	var u struct {
		Input      int64 `json:"input_tokens"`
		Cached     int64 `json:"cached_input_tokens"`
		CacheWrite int64 `json:"cache_write_input_tokens"`
		Output     int64 `json:"output_tokens"`
	}
	if json.Unmarshal(raw, &u) != nil {
		return nil
	}
	return usage{
		Input: u.Input - u.Cached - u.CacheWrite, Output: u.Output, CacheRead: u.Cached, CacheWrite: u.CacheWrite,
	}.json()
}
