package session_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/session"
)

var codexAt = time.Date(2026, 11, 20, 12, 7, 54, 421e6, time.UTC)

func codexLine(typ, payload string) string {
	return `{"timestamp":"2026-11-20T12:07:54.421Z","ordinal":6,"type":"` + typ + `","payload":` + payload + `}`
}

func TestCodexDecode(t *testing.T) {
	item := func(payload string) string { return codexLine("response_item", payload) }
	event := func(payload string) string { return codexLine("event_msg", payload) }
	for _, tt := range []struct {
		name, line string
		want       session.Entry
		message    string
	}{
		{"header", codexLine("session_meta", `{"id":"s1","cwd":"/w","model_provider":"p","timestamp":"2026-11-20T12:07:54.421Z"}`), session.Entry{
			Kind: session.Header, Type: "session_meta", Known: true, SessionID: "s1", Cwd: "/w", Provider: "p",
			Began: codexAt,
		}, ""},
		{"turn context", codexLine("turn_context", `{"cwd":"/w","model":"m"}`), session.Entry{Type: "turn_context", Known: true, Cwd: "/w", Model: "m"}, ""},
		{"usage", codexLine("token_usage_record", `{"usage":{"input_tokens":100,"cached_input_tokens":30,"output_tokens":5}}`), session.Entry{
			Type: "token_usage_record", Known: true, Usage: json.RawMessage(`{"input":70,"output":5,"cacheRead":30,"cacheWrite":0,"totalTokens":105}`),
		}, ""},
		{"begin", event(`{"type":"task_started"}`), session.Entry{Type: "task_started", Known: true, Mark: session.Begin}, ""},
		{"end", event(`{"type":"task_complete","last_agent_message":null}`), session.Entry{Type: "task_complete", Known: true, Mark: session.End, StopReason: "stop"}, ""},
		{"failure", event(`{"type":"task_complete","error":{"message":"no","codex_error_info":{"http_connection_failed":{"http_status_code":502}}}}`), session.Entry{
			Type: "task_complete", Known: true, Mark: session.Failure, StopReason: "error",
			ErrorMessage: "no (http_connection_failed 502)",
		}, ""},
		{"length", event(`{"type":"task_complete","error":{"message":"Incomplete response returned, reason: max_output_tokens","codex_error_info":"other"}}`), session.Entry{
			Type: "task_complete", Known: true, Mark: session.Failure, StopReason: "length",
			ErrorMessage: "Incomplete response returned, reason: max_output_tokens",
		}, ""},
		{"abort", event(`{"type":"turn_aborted","reason":"interrupted"}`), session.Entry{
			Type: "turn_aborted", Known: true, Mark: session.Abort, StopReason: "aborted", ErrorMessage: "interrupted",
		}, ""},
		{"an event of a later version", event(`{"type":"of_a_later_version"}`), session.Entry{Type: "of_a_later_version"}, ""},
		{"a type of a later version", codexLine("later", `{}`), session.Entry{Type: "later"}, ""},
		{"prompt", item(`{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:image/png;base64,AAAA"}],"internal_chat_message_metadata_passthrough":{"content_item_kinds":["user.text"]}}`), session.Entry{
			Kind: session.User, Type: "user", Known: true, Mark: session.Prompt, Text: "a",
		}, `{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AAAA"}],"timestamp":1795176474421}`},
		{"injected", item(`{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}],"internal_chat_message_metadata_passthrough":{"content_item_kinds":["environments.environment_context"]}}`), session.Entry{
			Type: "user", Known: true,
		}, ""},
		{"injected, older", item(`{"type":"message","role":"user","content":[{"type":"input_text","text":"\n<turn_aborted>\nx"}]}`), session.Entry{Type: "user", Known: true}, ""},
		{"prompt, older", item(`{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}`), session.Entry{
			Kind: session.User, Type: "user", Known: true, Mark: session.Prompt, Text: "a",
		}, `{"role":"user","content":[{"type":"text","text":"a"}],"timestamp":1795176474421}`},
		{"text", item(`{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"x"}]}`), session.Entry{
			Kind: session.Assistant, Type: "assistant", Known: true, Mark: session.Output, StopReason: "stop",
		}, `{"role":"assistant","content":[{"type":"text","text":"x"}],"stopReason":"stop","timestamp":1795176474421}`},
		{"text, cut", item(`{"type":"message","role":"assistant","status":"incomplete","content":[{"type":"output_text","text":"x"}]}`), session.Entry{
			Kind: session.Assistant, Type: "assistant", Known: true, Mark: session.Output, StopReason: "length",
		}, `{"role":"assistant","content":[{"type":"text","text":"x"}],"stopReason":"length","timestamp":1795176474421}`},
		{"thinking", item(`{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"x"}`), session.Entry{
			Kind: session.Assistant, Type: "reasoning", Known: true, Mark: session.Output,
		}, `{"role":"assistant","content":[{"type":"thinking","thinking":"hm"}],"timestamp":1795176474421}`},
		{"thinking, sealed", item(`{"type":"reasoning","summary":[],"encrypted_content":"x"}`), session.Entry{Type: "reasoning", Known: true, Mark: session.Output}, ""},
		{"call", item(`{"type":"function_call","name":"f","arguments":"{\"a\":1}","call_id":"c1"}`), session.Entry{
			Kind: session.Assistant, Type: "function_call", Known: true, Mark: session.Output, StopReason: "toolUse", Calls: []session.Call{{ID: "c1", Name: "f"}},
		}, `{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"f","arguments":{"a":1}}],"stopReason":"toolUse","timestamp":1795176474421}`},
		{"call, of a text", item(`{"type":"custom_tool_call","name":"apply_patch","input":"*** Begin","call_id":"c1"}`), session.Entry{
			Kind: session.Assistant, Type: "custom_tool_call", Known: true, Mark: session.Output, StopReason: "toolUse", Calls: []session.Call{{ID: "c1", Name: "apply_patch"}},
		}, `{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"apply_patch","arguments":{"input":"*** Begin"}}],"stopReason":"toolUse","timestamp":1795176474421}`},
		{"result", item(`{"type":"function_call_output","call_id":"c1","output":"Wall time: 0\nProcess exited with code 0\nOutput:\nProcess exited with code 3\n"}`), session.Entry{
			Kind: session.ToolResult, Type: "function_call_output", Known: true, Mark: session.Answer, ToolCallID: "c1",
		}, `{"role":"toolResult","toolCallId":"c1","isError":false,"content":[{"type":"text","text":"Wall time: 0\nProcess exited with code 0\nOutput:\nProcess exited with code 3\n"}],"timestamp":1795176474421}`},
		{"result, failed", item(`{"type":"function_call_output","call_id":"c1","output":"Process exited with code 3\nOutput:\nx"}`), session.Entry{
			Kind: session.ToolResult, Type: "function_call_output", Known: true, Mark: session.Answer, ToolCallID: "c1",
			IsError: true,
		}, `{"role":"toolResult","toolCallId":"c1","isError":true,"content":[{"type":"text","text":"Process exited with code 3\nOutput:\nx"}],"timestamp":1795176474421}`},
		{"result, failed, older", item(`{"type":"function_call_output","call_id":"c1","output":"{\"output\":\"x\",\"metadata\":{\"exit_code\":1}}"}`), session.Entry{
			Kind: session.ToolResult, Type: "function_call_output", Known: true, Mark: session.Answer, ToolCallID: "c1",
			IsError: true,
		}, `{"role":"toolResult","toolCallId":"c1","isError":true,"content":[{"type":"text","text":"{\"output\":\"x\",\"metadata\":{\"exit_code\":1}}"}],"timestamp":1795176474421}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := session.Codex.Decode([]byte(tt.line))
			if tt.message != "" && !sameJSON(t, got.Message, []byte(tt.message)) {
				t.Errorf("got  %s\nwant %s", got.Message, tt.message)
			}
			tt.want.Message, tt.want.Time, tt.want.Next = got.Message, codexAt, 7
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A turn that is written in a harness's form has the same content when it is read again.
func TestTurns(t *testing.T) {
	text := "said"
	for _, d := range session.Harnesses() {
		for name, turn := range map[string]session.Turn{
			"a text":       {Kind: session.User, Text: &text},
			"a message":    {Kind: session.User, Message: json.RawMessage(`{"role":"user","content":"said"}`)},
			"an answer":    {Kind: session.Assistant, Message: json.RawMessage(`{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"said"},{"type":"toolCall","id":"a|b","name":"f","arguments":{"x":1}}],"stopReason":"toolUse"}`)},
			"a bare text":  {Kind: session.Assistant, Message: json.RawMessage(`{"content":"said","usage":7}`)},
			"a result":     {Kind: session.ToolResult, ToolCallID: "c1", ToolName: "f", Message: json.RawMessage(`{"content":[{"type":"text","text":"said"}]}`)},
			"no JSON":      {Kind: session.User, Text: &text, Message: json.RawMessage(`{`)},
			"nothing said": {Kind: session.User},
		} {
			t.Run(d.Prefix+"/"+name, func(t *testing.T) {
				turn.Time = codexAt
				lines, omitted := d.Turn(turn, session.Place{ID: "0011aabb", Parent: "p0", Next: 4})
				if name == "nothing said" {
					if len(lines) > 0 {
						t.Errorf("got %s", lines)
					}
					return
				}
				if thinks := name == "an answer" && d.Prefix != "pi"; thinks != (omitted == "thinking") {
					t.Errorf("%q is left out", omitted)
				}
				said, calls := "", []session.Call(nil)
				for _, line := range lines {
					e := d.Decode(line)
					if !e.Known || e.Kind != turn.Kind || !e.Time.Equal(codexAt) ||
						e.ID != "" && (e.ID != "0011aabb" || e.Parent != "p0") {
						t.Errorf("%s is %+v", line, e)
					}
					said, calls = said+string(e.Message), append(calls, e.Calls...)
				}
				if want := `"said"`; len(lines) == 0 || !json.Valid(lines[0]) || !strings.Contains(said, want) {
					t.Errorf("made %s", lines)
				}
				if name == "an answer" && (len(calls) != 1 || calls[0].Name != "f") {
					t.Errorf("calls %+v", calls)
				}
			})
		}
	}
}

// FuzzDecode: every dialect takes everything, and what it makes of a line is JSON.
func FuzzDecode(f *testing.F) {
	for _, path := range recorded(f, "*") {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(content) {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, d := range session.Harnesses() {
			dec := session.Decoder{Dialect: d}
			dec.Next(
				[]byte(
					`{"type":"response_item","payload":{"type":"function_call","call_id":"call_0","name":"f","arguments":"{}"}}`,
				),
			)
			e := dec.Next(line)
			if !json.Valid(line) && e.Kind != session.Text {
				t.Errorf("%s: no JSON is of kind %d", d.Prefix, e.Kind)
			}
			if len(e.Message) > 0 && !json.Valid(e.Message) {
				t.Errorf("%s: the message is %s", d.Prefix, e.Message)
			}
			if again := dec.Again(line, e); again.Kind != e.Kind || string(again.Message) != string(e.Message) {
				t.Errorf("%s: decoded again it is %+v, was %+v", d.Prefix, again, e)
			}
		}
	})
}

// A line's tool and model follow from the lines before it.
func TestDecoder(t *testing.T) {
	dec := session.Decoder{Dialect: session.Codex}
	for _, line := range []string{
		codexLine("session_meta", `{"id":"s1","model_provider":"p"}`), codexLine("turn_context", `{"model":"m"}`),
		codexLine("response_item", `{"type":"function_call","name":"f","arguments":"{}","call_id":"c1"}`),
	} {
		dec.Next([]byte(line))
	}
	if e := dec.Next([]byte(codexLine("response_item", `{"type":"function_call_output","call_id":"c1","output":"x"}`))); e.ToolName != "f" ||
		!strings.Contains(string(e.Message), `"toolName":"f"`) {
		t.Errorf("got %+v %s", e, e.Message)
	}
	if e := dec.Next([]byte(codexLine("response_item", `{"type":"message","role":"assistant","content":[]}`))); e.Provider != "p" ||
		e.Model != "m" {
		t.Errorf("got %+v", e)
	}
}
