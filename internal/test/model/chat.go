package model

import "fmt"

// chat is the chat-completions API, as OpenAI-compatible servers speak it.
var chat = api{
	say:    sayChat,
	fault:  chatFault,
	broken: func(s *stream, message string) { s.data(chatFault(0, "", message)) },
}

func chatFault(_ int, code, message string) any {
	fault := object{"message": message, "type": "scripted"}
	if code != "" {
		fault["code"] = code
	}
	return object{"error": fault}
}

func sayChat(s *stream, r Reply) bool {
	chunk := func(delta object, finish any, usage any) {
		event := object{
			"id": fmt.Sprintf("chatcmpl-%d", s.n), "object": "chat.completion.chunk", "created": 0, "model": "scripted",
			"choices": []any{object{"index": 0, "delta": delta, "finish_reason": finish}},
		}
		if usage != nil {
			event["usage"] = usage
		}
		s.data(event)
	}
	chunk(object{"role": "assistant", "content": ""}, nil, nil)
	if !s.words(r.Thinking, func(word string) { chunk(object{"reasoning_content": word}, nil, nil) }) {
		return false
	}
	if !s.words(r.Text, func(word string) { chunk(object{"content": word}, nil, nil) }) {
		return false
	}
	for i, tool := range r.Tools {
		call := object{
			"index": i, "id": fmt.Sprintf("call_%d_%d", s.n, i), "type": "function",
			"function": object{"name": tool.Name, "arguments": tool.arguments()},
		}
		if tool.NoID {
			delete(call, "id")
		}
		chunk(object{"tool_calls": []any{call}}, nil, nil)
	}
	if r.Error != "" {
		return false
	}
	in, out := r.tokens(s.n)
	chunk(object{}, r.finish(), object{
		"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out,
		"prompt_tokens_details": object{"cached_tokens": r.CachedTokens},
	})
	s.raw("data: [DONE]\n\n")
	return true
}
