package dispatch

import (
	"context"
	"encoding/json"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/thread"
)

// Tool is a tool of bots.
type Tool interface {
	Spec() model.Tool
	// Run has the effect of a call, once for each key: called again with the same one, it returns the same. Its error
	// is the host's, as where the rows can't be reached: the call is run again, perhaps by another host.
	Run(ctx context.Context, c ToolCall) (ToolResult, error)
}

// ToolCall is a call of a tool, as it stands on the thread.
type ToolCall struct {
	Key       string
	Thread    string
	Bot       string
	Arguments json.RawMessage
}

// ToolResult is the result of a call, as a model reads it.
type ToolResult struct {
	Text    string
	IsError bool
}

// specs returns what a model is shown of the tools.
func (h *Host) specs() (specs []model.Tool) {
	for _, t := range h.Tools {
		specs = append(specs, t.Spec())
	}
	return specs
}

// calls runs the calls of a round that have no result, in order.
func (r *reaction) calls(ctx context.Context, j Journal, step Step) error {
	for _, i := range step.Calls {
		call := j.Rounds[step.Round].Calls[i]
		result, err := r.call(ctx, j, call, thread.CallKey(j.ID, step.Round, i))
		if err != nil {
			return err
		}
		err = r.post(ctx, entry(thread.CallResultID(j.ID, step.Round, i), j.Bot, thread.CallResult{
			Type: thread.TypeResult, Reaction: thread.InReaction{ID: j.ID, Round: step.Round, Depth: j.Depth},
			ToolCallID: call.ID, ToolName: call.Name, IsError: result.IsError,
			Message: thread.Marshal(message{
				Role: "toolResult", Content: []part{{Type: partText, Text: result.Text}},
			}),
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// call runs a call. One that can't be run has a result for the model, which may try again.
func (r *reaction) call(ctx context.Context, j Journal, c model.Call, key string) (ToolResult, error) {
	if c.Broken != "" {
		return ToolResult{Text: "the arguments are no JSON object, or were cut: call it again", IsError: true}, nil
	}
	for _, t := range r.Tools {
		if t.Spec().Name == c.Name {
			return t.Run(ctx, ToolCall{Key: key, Thread: r.worker.id, Bot: j.Bot, Arguments: c.Arguments})
		}
	}
	return ToolResult{Text: "there is no tool " + c.Name, IsError: true}, nil
}
