package model

import (
	"encoding/json"
	"fmt"
)

// messages is Anthropic's Messages API.
var messages = api{
	say:   sayMessages,
	whole: wholeMessage,
	fault: messagesFault,
	broken: func(s *stream, message string) {
		s.event("error", object{"error": object{"type": "overloaded_error", "message": message}})
	},
}

func messagesFault(status int, kind, message string) any {
	if kind != "" {
		return object{"type": "error", "error": object{"type": kind, "message": message}}
	}
	kind = map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		413: "request_too_large",
		429: "rate_limit_error", 529: "overloaded_error",
	}[status]
	if kind == "" {
		kind = "api_error"
	}
	return object{"type": "error", "error": object{"type": kind, "message": message}}
}

// message is a message with this content; an unfinished one has no stop reason. in is without the cached tokens.
func (s *stream) message(content []any, stop any, in, cached, out int) object {
	return object{
		"id": "msg_" + s.id, "type": "message", "role": "assistant", "model": s.asked.Model, "content": content,
		"stop_reason": stop, "stop_sequence": nil,
		"usage": object{
			"input_tokens":                in,
			"cache_creation_input_tokens": 0,
			"cache_read_input_tokens":     cached,
			"output_tokens":               out,
		},
	}
}

// stopReason is why the reply ends, in the words of Messages.
func (r Reply) stopReason() string {
	return map[string]string{
		"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens",
		"content_filter": "refusal",
	}[r.finish()]
}

// signature is the signature of a thinking block: a base64 text.
const signature = "c2NyaXB0ZWQ="

func sayMessages(s *stream, r Reply) bool {
	in, out := r.tokens(s.n)
	s.event("message_start", object{"message": s.message([]any{}, nil, in-r.CachedTokens, r.CachedTokens, 1)})
	index := 0
	open := func(block object) { s.event("content_block_start", object{"index": index, "content_block": block}) }
	delta := func(d object) { s.event("content_block_delta", object{"index": index, "delta": d}) }
	stop := func() {
		s.event("content_block_stop", object{"index": index})
		index++
	}
	if r.Thinking != "" {
		open(object{"type": "thinking", "thinking": "", "signature": ""})
		if !s.words(r.Thinking, func(word string) { delta(object{"type": "thinking_delta", "thinking": word}) }) {
			return false
		}
		delta(object{"type": "signature_delta", "signature": signature})
		stop()
	}
	if r.Text != "" {
		open(object{"type": "text", "text": ""})
		if !s.words(r.Text, func(word string) { delta(object{"type": "text_delta", "text": word}) }) {
			return false
		}
		stop()
	}
	for i, tool := range r.Tools {
		id := s.toolID(i)
		if tool.NoID {
			id = ""
		}
		open(object{"type": "tool_use", "id": id, "name": tool.Name, "input": object{}})
		delta(object{"type": "input_json_delta", "partial_json": tool.arguments()})
		stop()
	}
	if s.left == 0 || r.Error != "" {
		return false
	}
	s.event(
		"message_delta",
		object{"delta": object{"stop_reason": r.stopReason(), "stop_sequence": nil}, "usage": object{"output_tokens": out}},
	)
	s.event("message_stop", object{})
	return true
}

func (s *stream) toolID(i int) string { return fmt.Sprintf("toolu_%s_%d", s.id, i) }

// wholeMessage is the reply to a request without a stream. claude sends one after a stream with an error.
func wholeMessage(s *stream, r Reply) any {
	content := []any{}
	if r.Thinking != "" {
		content = append(content, object{"type": "thinking", "thinking": r.Thinking, "signature": signature})
	}
	if r.Text != "" {
		content = append(content, object{"type": "text", "text": r.Text})
	}
	for i, tool := range r.Tools {
		content = append(
			content,
			object{
				"type": "tool_use", "id": s.toolID(i), "name": tool.Name,
				"input": json.RawMessage(tool.arguments()),
			},
		)
	}
	in, out := r.tokens(s.n)
	return s.message(content, r.stopReason(), in-r.CachedTokens, r.CachedTokens, out)
}
