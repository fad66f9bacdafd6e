package session_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/session"
)

func TestClaudeDecode(t *testing.T) {
	line := func(members string) string {
		return `{"parentUuid":"u0","isSidechain":false,"uuid":"u1","timestamp":"2026-11-20T12:07:54.421Z","sessionId":"s1","cwd":"/w",` + members + `}`
	}
	user := func(members, message string) string { return line(members + `"type":"user","message":` + message) }
	reply := func(members, message string) string {
		return line(
			members + `"type":"assistant","message":{"id":"m1","model":"m","role":"assistant",` + message + `}`,
		)
	}
	text := `"content":[{"type":"text","text":"x"}]`
	with := func(stop string) string {
		if stop != "" {
			stop = `"stopReason":"` + stop + `",`
		}
		return `{"role":"assistant","content":[{"type":"text","text":"x"}],"model":"m",` + stop + `"timestamp":1795176474421}`
	}
	for _, tt := range []struct {
		name, line string
		want       session.Entry
		message    string
	}{
		{"prompt", user(`"promptSource":"sdk",`, `{"role":"user","content":"<command-name>a"}`), session.Entry{
			Kind: session.User, Type: "user", Known: true, Mark: session.Prompt, Cwd: "/w", Text: "<command-name>a",
		}, `{"role":"user","content":[{"type":"text","text":"<command-name>a"}],"timestamp":1795176474421}`},
		{"prompt with an image", user("", `{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}`), session.Entry{
			Kind: session.User, Type: "user", Known: true, Mark: session.Prompt, Cwd: "/w", Text: "a",
		}, `{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AAAA"}],"timestamp":1795176474421}`},
		{"injected", user(`"isMeta":true,`, `{"role":"user","content":"Output token limit hit."}`), session.Entry{Type: "user", Known: true}, ""},
		{"a summary", user(`"isCompactSummary":true,`, `{"role":"user","content":"This session is continued"}`), session.Entry{Type: "user", Known: true}, ""},
		{"a notification", user(`"promptSource":"system",`, `{"role":"user","content":"<task-notification>"}`), session.Entry{Type: "user", Known: true}, ""},
		{"a notification, older", user("", `{"role":"user","content":"<task-notification>"}`), session.Entry{Type: "user", Known: true}, ""},
		{"a command", user("", `{"role":"user","content":"<command-name>/clear</command-name>"}`), session.Entry{
			Type: "user", Known: true, Command: true,
		}, ""},
		{"one of a skill", user(`"isMeta":true,`, `{"role":"user","content":"<command-name>x</command-name>"}`), session.Entry{
			Type: "user", Known: true,
		}, ""},
		{"a refused command", line(`"type":"system","subtype":"local_command","content":"/exit"`), session.Entry{
			Type: "local_command", Known: true, Command: true,
		}, ""},
		{
			"its output", line(`"type":"system","subtype":"local_command","content":"<local-command-stdout>no</local-command-stdout>"`),
			session.Entry{Type: "local_command", Known: true},
			"",
		},
		{"interrupted", user("", `{"role":"user","content":[{"type":"text","text":"[Request interrupted by user for tool use]"}]}`), session.Entry{
			Type: "user", Known: true, Mark: session.Abort, StopReason: "aborted",
		}, ""},
		{"result", user("", `{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"out","is_error":true}]}`), session.Entry{
			Kind: session.ToolResult, Type: "user", Known: true, Mark: session.Answer, ToolCallID: "c1", IsError: true,
		}, `{"role":"toolResult","toolCallId":"c1","isError":true,"content":[{"type":"text","text":"out"}],"timestamp":1795176474421}`},
		{"answer", reply("", text+`,"stop_reason":"end_turn","usage":{"input_tokens":5,"cache_read_input_tokens":2,"output_tokens":3}`), session.Entry{
			Kind: session.Assistant, Type: "assistant", Known: true, Mark: session.End, StopReason: "stop",
			Provider: "anthropic", Model: "m", Reply: "m1",
			Usage: json.RawMessage(`{"input":5,"output":3,"cacheRead":2,"cacheWrite":0,"totalTokens":10}`),
		}, with("stop")},
		{"cut", reply("", text+`,"stop_reason":"max_tokens"`), session.Entry{
			Kind: session.Assistant, Type: "assistant", Known: true, Mark: session.Output, StopReason: "length",
			Provider: "anthropic", Model: "m", Reply: "m1",
		}, with("length")},
		{"a reply under way", reply("", text+`,"stop_reason":null`), session.Entry{
			Kind: session.Assistant, Type: "assistant", Known: true, Mark: session.Output, Provider: "anthropic",
			Model: "m", Reply: "m1",
		}, with("")},
		{"call", reply("", `"content":[{"type":"tool_use","id":"c1","name":"Bash","input":{"command":"ls"}}],"stop_reason":"tool_use"`), session.Entry{
			Kind: session.Assistant, Type: "assistant", Known: true, Mark: session.Output, StopReason: "toolUse",
			Provider: "anthropic", Model: "m", Reply: "m1",
			Calls: []session.Call{{ID: "c1", Name: "Bash"}},
		}, `{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"Bash","arguments":{"command":"ls"}}],"model":"m","stopReason":"toolUse","timestamp":1795176474421}`},
		{"thinking", reply("", `"content":[{"type":"thinking","thinking":"hm","signature":"sig"}],"stop_reason":"end_turn"`), session.Entry{
			Kind: session.Assistant, Type: "assistant", Known: true, Mark: session.End, StopReason: "stop",
			Provider: "anthropic", Model: "m", Reply: "m1",
		}, `{"role":"assistant","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"sig"}],"model":"m","stopReason":"stop","timestamp":1795176474421}`},
		{"failure", line(`"isApiErrorMessage":true,"error":"rate_limit","type":"assistant","message":{"id":"m2","model":"<synthetic>","stop_reason":"stop_sequence","usage":{},` + text + `}`), session.Entry{
			Kind: session.Assistant, Type: "assistant", Known: true, Mark: session.Failure, StopReason: "error",
			ErrorMessage: "x (rate_limit)", Reply: "m2",
		}, `{"role":"assistant","content":[{"type":"text","text":"x"}],"stopReason":"error","errorMessage":"x (rate_limit)","timestamp":1795176474421}`},
		{"refusal", reply("", text+`,"stop_reason":"refusal"`), session.Entry{
			Kind: session.Assistant, Type: "assistant", Known: true, Mark: session.Failure, StopReason: "error",
			ErrorMessage: "the model refused", Provider: "anthropic", Model: "m", Reply: "m1",
		}, `{"role":"assistant","content":[{"type":"text","text":"x"}],"model":"m","stopReason":"error","errorMessage":"the model refused","timestamp":1795176474421}`},
		{"aborted", reply(`"isAbortedMidStream":true,`, text+`,"stop_reason":null`), session.Entry{
			Kind: session.Assistant, Type: "assistant", Known: true, Mark: session.Abort, StopReason: "aborted",
			Provider: "anthropic", Model: "m", Reply: "m1",
		}, with("aborted")},
		{"attachment", line(`"type":"attachment","attachment":{"type":"date"}`), session.Entry{Type: "attachment", Known: true}, ""},
		{"boundary", line(`"type":"system","subtype":"compact_boundary"`), session.Entry{Type: "compact_boundary", Known: true}, ""},
		{"a type of a later version", line(`"type":"later"`), session.Entry{Type: "later"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := session.Claude.Decode([]byte(tt.line))
			if tt.message != "" && !sameJSON(t, got.Message, []byte(tt.message)) {
				t.Errorf("got  %s\nwant %s", got.Message, tt.message)
			}
			tt.want.Message, tt.want.Time, tt.want.ID, tt.want.Parent, tt.want.SessionID = got.Message, codexAt, "u1",
				"u0", "s1"
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	side := session.Claude.Decode([]byte(`{"isSidechain":true,"uuid":"u1","type":"user","message":{"content":"x"}}`))
	if !side.Side || side.Mark != session.NoMark {
		t.Errorf("a subagent's line is %+v", side)
	}
}

// A reply's cost is counted once, however many lines the reply takes.
func TestClaudeUsage(t *testing.T) {
	dec := session.Decoder{Dialect: session.Claude}
	counted := 0
	for _, id := range []string{"m1", "m1", "m2"} {
		e := dec.Next(
			[]byte(
				`{"type":"assistant","message":{"id":"` + id + `","content":[],"stop_reason":"end_turn","usage":{"input_tokens":1}}}`,
			),
		)
		if len(e.Usage) > 0 {
			counted++
		}
	}
	if counted != 2 {
		t.Errorf("two replies were counted %d times", counted)
	}
}
