package openai

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/provider"
)

// encode returns a request in the API's form.
func encode(r model.Request) (sdk.ChatCompletionNewParams, error) {
	p := sdk.ChatCompletionNewParams{
		Model: r.Model, StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: sdk.Bool(true)},
	}
	for _, t := range r.Tools {
		tool := shared.FunctionDefinitionParam{Name: t.Name}
		if err := json.Unmarshal(t.Schema, &tool.Parameters); err != nil {
			return p, fmt.Errorf("schema of the tool %s: %w", t.Name, err)
		}
		if t.Description != "" {
			tool.Description = sdk.String(t.Description)
		}
		p.Tools = append(p.Tools, sdk.ChatCompletionFunctionTool(tool))
	}
	switch {
	case r.Must != "":
		must := sdk.ChatCompletionNamedToolChoiceFunctionParam{Name: r.Must}
		p.ToolChoice = sdk.ToolChoiceOptionFunctionToolChoice(must)
	case r.NoCalls && len(r.Tools) > 0: // the provider refuses a choice without tools
		p.ToolChoice.OfAuto = sdk.String(string(sdk.ChatCompletionToolChoiceOptionAutoNone))
	}
	if r.System != "" {
		p.Messages = append(p.Messages, sdk.SystemMessage(r.System))
	}
	for _, m := range provider.Turns(r.Messages) {
		if m.Role == model.Assistant {
			p.Messages = append(p.Messages, assistant(m.Parts)...)
		} else {
			p.Messages = append(p.Messages, user(m.Parts)...)
		}
	}
	return p, nil
}

// user returns a message of the user: one for each result, and one for the rest. The API has no mark for an error.
func user(parts []model.Part) (all []sdk.ChatCompletionMessageParamUnion) {
	var rest []sdk.ChatCompletionContentPartUnionParam
	for _, p := range parts {
		switch {
		case p.Result != nil:
			text := provider.Output(p.Result)
			if p.Result.IsError {
				text = "Error: " + text
			}
			all = append(all, sdk.ToolMessage(text, p.Result.CallID))
		case p.Image != nil:
			rest = append(rest, sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{
				URL: "data:" + p.Image.MIME + ";base64," + base64.StdEncoding.EncodeToString(p.Image.Data),
			}))
		default:
			rest = append(rest, sdk.TextContentPart(p.Text))
		}
	}
	switch {
	case len(rest) == 1 && rest[0].OfText != nil: // some servers take nothing but a text
		all = append(all, sdk.UserMessage(rest[0].OfText.Text))
	case len(rest) > 0:
		all = append(all, sdk.UserMessage(rest))
	}
	return all
}

// assistant returns a message of the assistant, none where there was thinking alone: the API takes none back.
func assistant(parts []model.Part) []sdk.ChatCompletionMessageParamUnion {
	m := &sdk.ChatCompletionAssistantMessageParam{}
	var texts []string
	for _, p := range parts {
		switch {
		case p.Thinking != nil:
		case p.Call != nil:
			m.ToolCalls = append(m.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{
				OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
					ID: p.Call.ID,
					Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{
						Name: p.Call.Name, Arguments: string(provider.Arguments(p.Call)),
					},
				},
			})
		default:
			texts = append(texts, p.Text)
		}
	}
	if len(texts) == 0 && len(m.ToolCalls) == 0 {
		return nil
	}
	if len(texts) > 0 {
		m.Content.OfString = sdk.String(strings.Join(texts, "\n\n"))
	}
	return []sdk.ChatCompletionMessageParamUnion{{OfAssistant: m}}
}
