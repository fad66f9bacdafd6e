package anthropic

import (
	"encoding/base64"
	"encoding/json"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/provider"
)

// encode returns a request in the API's form. What a cache may keep ends with the system text: tools stand before it.
func encode(r model.Request) sdk.MessageNewParams {
	p := sdk.MessageNewParams{Model: r.Model, MaxTokens: int64(r.MaxTokens)}
	for _, t := range r.Tools {
		tool := &sdk.ToolParam{Name: t.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](t.Schema)}
		if t.Description != "" {
			tool.Description = sdk.String(t.Description)
		}
		p.Tools = append(p.Tools, sdk.ToolUnionParam{OfTool: tool})
	}
	if r.System != "" {
		p.System = []sdk.TextBlockParam{{Text: r.System, CacheControl: sdk.NewCacheControlEphemeralParam()}}
	} else if n := len(p.Tools); n > 0 {
		p.Tools[n-1].OfTool.CacheControl = sdk.NewCacheControlEphemeralParam()
	}
	switch {
	case r.Must != "":
		p.ToolChoice = sdk.ToolChoiceParamOfTool(r.Must)
	case r.NoCalls && len(r.Tools) > 0: // the provider refuses a choice without tools
		none := sdk.NewToolChoiceNoneParam()
		p.ToolChoice = sdk.ToolChoiceUnionParam{OfNone: &none}
	}
	for _, m := range provider.Turns(r.Messages) {
		turn := sdk.MessageParam{Role: sdk.MessageParamRole(m.Role)}
		for _, part := range m.Parts {
			turn.Content = append(turn.Content, block(part))
		}
		p.Messages = append(p.Messages, turn)
	}
	return p
}

// block returns a part as a content block.
func block(p model.Part) sdk.ContentBlockParamUnion {
	switch {
	case p.Thinking != nil && p.Thinking.Redacted:
		return sdk.NewRedactedThinkingBlock(p.Thinking.Signature)
	case p.Thinking != nil:
		return sdk.NewThinkingBlock(p.Thinking.Signature, p.Thinking.Text)
	case p.Call != nil:
		return sdk.NewToolUseBlock(p.Call.ID, json.RawMessage(provider.Arguments(p.Call)), p.Call.Name)
	case p.Result != nil:
		return sdk.NewToolResultBlock(p.Result.CallID, provider.Output(p.Result), p.Result.IsError)
	case p.Image != nil:
		return sdk.NewImageBlockBase64(p.Image.MIME, base64.StdEncoding.EncodeToString(p.Image.Data))
	}
	return sdk.NewTextBlock(p.Text)
}
