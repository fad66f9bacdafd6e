package model

import (
	"fmt"
	"maps"
	"strings"
)

// responses is OpenAI's Responses API, as streamed to a client that keeps the conversation itself.
var responses = api{say: sayResponses, fault: responsesFault, broken: func(s *stream, message string) {
	s.event(
		"response.failed",
		object{"response": s.response("failed", object{"error": object{"code": "server_error", "message": message}})},
	)
}}

func responsesFault(status int, _, message string) any {
	kind, code := "invalid_request_error", any(nil)
	switch {
	case status == 401:
		code = "invalid_api_key"
	case status == 404:
		code = "model_not_found"
	case status == 429:
		kind, code = "requests", "rate_limit_exceeded"
	case status >= 500:
		kind = "server_error"
	}
	return object{"error": object{"message": message, "type": kind, "param": nil, "code": code}}
}

// response returns the response object, which the first event and the last have.
func (s *stream) response(status string, more object) object {
	resp := object{
		"id":                 "resp_" + s.id,
		"object":             "response",
		"created_at":         0,
		"model":              s.asked.Model,
		"status":             status,
		"output":             []any{},
		"error":              nil,
		"incomplete_details": nil,
	}
	maps.Copy(resp, more)
	return resp
}

func sayResponses(s *stream, r Reply) bool {
	status, end := "completed", object{}
	if reason := map[string]string{
		"length":         "max_output_tokens",
		"content_filter": "content_filter",
	}[r.finish()]; reason != "" {
		status, end["incomplete_details"] = "incomplete", object{"reason": reason}
	}
	s.event("response.created", object{"response": s.response("in_progress", nil)})
	out := &items{stream: s}
	if r.Thinking != "" && !out.reasoning(r.Thinking) {
		return false
	}
	// What an incomplete response had before its last item is complete.
	of := func(last bool) string {
		if last {
			return status
		}
		return "completed"
	}
	if r.Text != "" && !out.message(r.Text, of(len(r.Tools) == 0)) {
		return false
	}
	for i, tool := range r.Tools {
		out.call(tool, i, of(i == len(r.Tools)-1))
	}
	if s.left == 0 || r.Error != "" {
		return false
	}
	in, n := r.tokens(s.n)
	end["output"] = out.done
	end["usage"] = object{
		"input_tokens": in, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens": n,
		"output_tokens_details": object{"reasoning_tokens": 0},
		"total_tokens":          in + n,
	}
	s.event("response."+status, object{"response": s.response(status, end)})
	return true
}

// items sends the output items of a response, one after the other.
type items struct {
	*stream
	done []any
}

// open sends the event of a new item, and returns what the events about it have in common.
func (o *items) open(item object) func(more object) object {
	index := len(o.done)
	o.event("response.output_item.added", object{"output_index": index, "item": item})
	return func(more object) object {
		more["output_index"], more["item_id"] = index, item["id"]
		return more
	}
}

func (o *items) close(item object) {
	o.event("response.output_item.done", object{"output_index": len(o.done), "item": item})
	o.done = append(o.done, item)
}

func (o *items) reasoning(text string) bool {
	item := func(summary ...any) object {
		return object{
			"type":              "reasoning",
			"id":                "rs_" + o.id,
			"summary":           append([]any{}, summary...),
			"encrypted_content": nil,
		}
	}
	about := o.open(item())
	part := func(text string) object { return object{"type": "summary_text", "text": text} }
	o.event("response.reasoning_summary_part.added", about(object{"summary_index": 0, "part": part("")}))
	if !o.words(text, func(word string) {
		o.event("response.reasoning_summary_text.delta", about(object{"summary_index": 0, "delta": word}))
	}) {
		return false
	}
	o.event("response.reasoning_summary_text.done", about(object{"summary_index": 0, "text": text}))
	o.event("response.reasoning_summary_part.done", about(object{"summary_index": 0, "part": part(text)}))
	o.close(item(part(text)))
	return true
}

func (o *items) message(text, status string) bool {
	item := func(status string, content ...any) object {
		return object{
			"type":    "message",
			"id":      "msg_" + o.id,
			"status":  status,
			"role":    "assistant",
			"content": append([]any{}, content...),
		}
	}
	about := o.open(item("in_progress"))
	part := func(text string) object { return object{"type": "output_text", "text": text, "annotations": []any{}} }
	o.event("response.content_part.added", about(object{"content_index": 0, "part": part("")}))
	if !o.words(text, func(word string) {
		o.event("response.output_text.delta", about(object{"content_index": 0, "delta": word}))
	}) {
		return false
	}
	o.event("response.output_text.done", about(object{"content_index": 0, "text": text}))
	o.event("response.content_part.done", about(object{"content_index": 0, "part": part(text)}))
	o.close(item(status, part(text)))
	return true
}

func (o *items) call(tool Tool, i int, status string) {
	if tool.Input != "" {
		o.freeform(tool, i, status)
		return
	}
	item := func(status, args string) object {
		call := object{
			"type": "function_call", "id": fmt.Sprintf("fc_%s_%d", o.id, i),
			"call_id": fmt.Sprintf("call_%s_%d", o.id, i), "name": tool.Name,
			"arguments": args, "status": status,
		}
		if at := strings.LastIndexByte(tool.Name, '.'); at > 0 {
			call["namespace"], call["name"] = tool.Name[:at], tool.Name[at+1:]
		}
		return call
	}
	about := o.open(item("in_progress", ""))
	o.event("response.function_call_arguments.delta", about(object{"delta": tool.arguments()}))
	o.event("response.function_call_arguments.done", about(object{"arguments": tool.arguments()}))
	o.close(item(status, tool.arguments()))
}

func (o *items) freeform(tool Tool, i int, status string) {
	item := func(status, input string) object {
		return object{
			"type": "custom_tool_call", "id": fmt.Sprintf("ctc_%s_%d", o.id, i),
			"call_id": fmt.Sprintf("call_%s_%d", o.id, i), "name": tool.Name, "input": input, "status": status,
		}
	}
	about := o.open(item("in_progress", ""))
	o.event("response.custom_tool_call_input.delta", about(object{"delta": tool.Input}))
	o.event("response.custom_tool_call_input.done", about(object{"input": tool.Input}))
	o.close(item(status, tool.Input))
}
