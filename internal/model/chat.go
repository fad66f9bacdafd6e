package model

import (
	"encoding/json"
	"fmt"
	"strings"
)

// writeChat writes a reply as a chat-completions stream, as OpenAI-compatible servers do.
func writeChat(s *stream, r Reply, n int) {
	type delta = map[string]any
	chunk := func(d delta, finish any, usage any) {
		event := map[string]any{
			"id": fmt.Sprintf("chatcmpl-%d", n), "object": "chat.completion.chunk", "created": 0, "model": "scripted",
			"choices": []any{map[string]any{"index": 0, "delta": d, "finish_reason": finish}},
		}
		if usage != nil {
			event["usage"] = usage
		}
		s.event(event)
	}
	chunk(delta{"role": "assistant", "content": ""}, nil, nil)
	if r.Thinking != "" {
		s.words(r.Thinking, r.Pace, func(word string) { chunk(delta{"reasoning_content": word}, nil, nil) })
	}
	if r.Text != "" {
		s.words(r.Text, r.Pace, func(word string) { chunk(delta{"content": word}, nil, nil) })
	}
	for i, tool := range r.Tools {
		args, err := json.Marshal(tool.Arguments)
		if err != nil {
			panic(err) // they came from JSON
		}
		chunk(delta{"tool_calls": []any{map[string]any{
			"index": i, "id": fmt.Sprintf("call_%d_%d", n, i), "type": "function",
			"function": map[string]any{"name": tool.Name, "arguments": string(args)},
		}}}, nil, nil)
	}
	in, out := r.InputTokens, r.OutputTokens
	if in == 0 {
		in = 100 + 10*n
	}
	if out == 0 {
		out = len(strings.Fields(r.Text)) + 10*len(r.Tools)
	}
	chunk(delta{}, r.finish(), map[string]any{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out})
	s.raw("data: [DONE]\n\n")
}
