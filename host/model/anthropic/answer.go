package anthropic

import (
	"errors"
	"fmt"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/provider"
)

// answer is an answer as it arrives.
type answer struct {
	message sdk.Message
	begun   bool
	// The texts of calls' arguments by block: Accumulate replaces those that are no JSON.
	arguments map[int64]string
}

// add adds an event. It refuses what Accumulate does not: a message that begins twice or not at all, and a part of a
// block of another type.
func (a *answer) add(e sdk.MessageStreamEventUnion, f func(model.Event)) error {
	if a.begun == (e.Type == "message_start") {
		return fmt.Errorf("event %q at the wrong place", e.Type)
	}
	a.begun = true
	if err := a.message.Accumulate(e); err != nil {
		return err
	}
	switch e.Type {
	case "content_block_start":
		switch block := a.message.Content[e.Index]; {
		case block.Type == "tool_use":
			f(model.Event{Tool: block.Name})
		case block.Text != "":
			f(model.Event{Text: block.Text})
		}
	case "content_block_delta":
		is := a.message.Content[e.Index].Type
		switch {
		case e.Delta.Type == "text_delta" && is != "text", e.Delta.Type == "input_json_delta" && is == "text":
			return fmt.Errorf("%q in a block of type %q", e.Delta.Type, is)
		case e.Delta.Type == "input_json_delta":
			if a.arguments == nil {
				a.arguments = map[int64]string{}
			}
			a.arguments[e.Index] += e.Delta.PartialJSON
		case e.Delta.Text != "":
			f(model.Event{Text: e.Delta.Text})
		}
	}
	return nil
}

// stops are why an answer ends, in the words of model. pause_turn is for tools of Anthropic's servers, which are not
// used.
var stops = map[sdk.StopReason]model.Stop{
	sdk.StopReasonEndTurn:                    model.StopEnd,
	sdk.StopReasonStopSequence:               model.StopEnd,
	sdk.StopReasonToolUse:                    model.StopCalls,
	sdk.StopReasonMaxTokens:                  model.StopLength,
	sdk.StopReasonModelContextWindowExceeded: model.StopLength,
	sdk.StopReasonRefusal:                    model.StopRefused,
}

// end returns an error if the answer is not complete.
func (a *answer) end() error {
	switch reason := a.message.StopReason; {
	case !a.begun:
		return errors.New("a stream without a message")
	case stops[reason] == "":
		return fmt.Errorf("stop reason %q", reason)
	}
	return nil
}

func (a *answer) usage() model.Usage {
	u := a.message.Usage
	return model.Usage{
		Input: u.InputTokens, Output: u.OutputTokens,
		CacheRead: u.CacheReadInputTokens, CacheWrite: u.CacheCreationInputTokens,
	}
}

// reply returns the complete answer.
func (a *answer) reply() model.Reply {
	r := model.Reply{Stop: stops[a.message.StopReason], Model: a.message.Model, Usage: a.usage()}
	for i, b := range a.message.Content {
		switch b.Type {
		case "text":
			r.Parts = append(r.Parts, model.Part{Text: b.Text})
		case "thinking":
			r.Parts = append(r.Parts, model.Part{Thinking: &model.Thinking{Text: b.Thinking, Signature: b.Signature}})
		case "redacted_thinking":
			r.Parts = append(r.Parts, model.Part{Thinking: &model.Thinking{Signature: b.Data, Redacted: true}})
		case "tool_use":
			arguments := a.arguments[int64(i)]
			if arguments == "" {
				arguments = string(b.Input)
			}
			r.Parts = append(r.Parts, model.Part{Call: provider.Call(b.ID, b.Name, arguments)})
		}
	}
	provider.Complete(&r)
	return r
}
