package openai

import (
	"fmt"
	"strings"

	sdk "github.com/openai/openai-go/v3"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/provider"
)

// answer is an answer as it arrives. The library's accumulator is not used: it takes calls apart by index alone, and
// some servers number each call 0.
type answer struct {
	model, finish string
	text, refusal strings.Builder
	calls         []*call
	usage         model.Usage
}

type call struct {
	index     int64
	id, name  string
	arguments strings.Builder
}

// add adds a chunk.
func (a *answer) add(c sdk.ChatCompletionChunk, f func(model.Event)) {
	if c.Model != "" {
		a.model = c.Model
	}
	if u := c.Usage; c.JSON.Usage.Valid() {
		cached := u.PromptTokensDetails
		a.usage = model.Usage{
			Input:  max(0, u.PromptTokens-cached.CachedTokens-cached.CacheWriteTokens),
			Output: u.CompletionTokens, CacheRead: cached.CachedTokens, CacheWrite: cached.CacheWriteTokens,
		}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		d := choice.Delta
		a.text.WriteString(d.Content)
		a.refusal.WriteString(d.Refusal)
		if text := d.Content + d.Refusal; text != "" {
			f(model.Event{Text: text})
		}
		for _, part := range d.ToolCalls {
			a.call(part, f)
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
}

// call adds a part of a call: of the last one with its index, unless that has another id.
func (a *answer) call(part sdk.ChatCompletionChunkChoiceDeltaToolCall, f func(model.Event)) {
	i := len(a.calls) - 1
	for i >= 0 && a.calls[i].index != part.Index {
		i--
	}
	if i < 0 || part.ID != "" && a.calls[i].id != "" && part.ID != a.calls[i].id {
		i = len(a.calls)
		a.calls = append(a.calls, &call{index: part.Index})
	}
	c := a.calls[i]
	if c.id == "" {
		c.id = part.ID
	}
	if c.name == "" && part.Function.Name != "" {
		c.name = part.Function.Name
		f(model.Event{Tool: c.name})
	}
	c.arguments.WriteString(part.Function.Arguments)
}

// stops are why an answer ends, in the words of model.
var stops = map[string]model.Stop{
	"stop":           model.StopEnd,
	"end":            model.StopEnd, // of some servers
	"tool_calls":     model.StopCalls,
	"function_call":  model.StopCalls,
	"length":         model.StopLength,
	"content_filter": model.StopRefused,
}

// end returns an error if the answer is not complete.
func (a *answer) end() error {
	if stops[a.finish] == "" {
		return fmt.Errorf("finish reason %q", a.finish)
	}
	return nil
}

// reply returns the complete answer.
func (a *answer) reply() model.Reply {
	r := model.Reply{
		Parts: []model.Part{{Text: a.text.String()}, {Text: a.refusal.String()}},
		Stop:  stops[a.finish], Model: a.model, Usage: a.usage,
	}
	if a.refusal.Len() > 0 {
		r.Stop = model.StopRefused
	}
	for _, c := range a.calls {
		r.Parts = append(r.Parts, model.Part{Call: provider.Call(c.id, c.name, c.arguments.String())})
	}
	provider.Complete(&r)
	return r
}
