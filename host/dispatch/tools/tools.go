// Package tools has the tools that bots call, one file each. docs/ADD-A-TOOL.md has how one is added.
//
// A tool works as the bot: with rows it sees what its house's members see, and no other house. It may run again with
// the same key, on another host, after one that died in the middle of it: whatever it makes has an id made of the key,
// so that the second time finds it. Its result is text for a model; package answer removes secrets from it.
//
// The arguments of a call are checked against the tool's schema before anything runs.
package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/rows"
)

// Host has the means of the tools. A tool whose means are nil reports that to the model.
type Host struct {
	Commands Commands
	// Delegate makes the row of a task, and returns that of an earlier call with the same id. An error that no repeat
	// can mend is a *rows.Refusal.
	Delegate func(ctx context.Context, t rows.Task) (rows.Task, error)
	Rows     func(ctx context.Context, bot string) (Rows, error) // as a bot may read and write them
	Threads  func(id string) dispatch.Thread                     // of the server, for the host
	Last     func(ctx context.Context, id string) (time.Time, error)
	Gifs     *Gifs
}

// All returns the tools, in the order in which models are shown them.
func (h *Host) All() []dispatch.Tool {
	return []dispatch.Tool{
		helloWorld(),
		h.runCommand(),
		h.delegateTask(),
		h.listThreads(),
		h.readThread(),
		h.createThread(),
		h.postToThread(),
		h.createAgent(),
		h.sendGif(),
	}
}

// Names returns the names of all tools.
func Names() (names []string) {
	for _, t := range new(Host).All() {
		names = append(names, t.Name)
	}
	return names
}

// shown returns what a model is shown of a tool: properties and required are of the JSON Schema of its arguments.
func shown(name, description, properties string, required ...string) model.Tool {
	schema, err := json.Marshal(map[string]any{
		"type": "object", "properties": json.RawMessage(properties), "required": append([]string{}, required...),
		"additionalProperties": false,
	})
	if err != nil {
		panic(fmt.Sprintf("the schema of %s: %v", name, err))
	}
	return model.Tool{Name: name, Description: description, Schema: schema}
}

// taking returns a Run of a tool whose arguments are an A. Those that its schema refuses never reach do.
func taking[A any](
	t model.Tool, do func(ctx context.Context, c dispatch.ToolCall, a A) (dispatch.ToolResult, error),
) func(context.Context, dispatch.ToolCall) (dispatch.ToolResult, error) {
	schema := compiled(t)
	return func(ctx context.Context, c dispatch.ToolCall) (dispatch.ToolResult, error) {
		var a A
		err := valid(schema, c.Arguments)
		if err == nil {
			err = json.Unmarshal(c.Arguments, &a)
		}
		if err != nil {
			text := "the arguments are refused: " + err.Error()
			return dispatch.ToolResult{Text: text, IsError: true, Invalid: true}, nil
		}
		return do(ctx, c, a)
	}
}

// compiled returns the schema of a tool. It panics for a wrong one: they are constants of this package.
func compiled(t model.Tool) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(t.Schema)))
	if err != nil {
		panic(fmt.Sprintf("the schema of %s: %v", t.Name, err))
	}
	at := "tool:" + t.Name // errors have it: a name alone would become a path of this machine
	c := jsonschema.NewCompiler()
	if err := c.AddResource(at, doc); err != nil {
		panic(fmt.Sprintf("the schema of %s: %v", t.Name, err))
	}
	return c.MustCompile(at)
}

// valid returns why arguments are not of a schema, in lines that a model understands.
func valid(schema *jsonschema.Schema, arguments json.RawMessage) error {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(arguments)))
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

// result is a result that is no error.
func result(format string, args ...any) (dispatch.ToolResult, error) {
	return dispatch.ToolResult{Text: fmt.Sprintf(format, args...)}, nil
}

// failed is a result about an error.
func failed(format string, args ...any) (dispatch.ToolResult, error) {
	return dispatch.ToolResult{Text: fmt.Sprintf(format, args...), IsError: true}, nil
}
