// Package model is a model server that says what a script tells it to. Agents under test and the demo talk to it as they would to a provider: each
// request takes the script's next reply, which can be text, tool calls, an error, a delay or a connection that breaks off.
//
// A Reply knows nothing of any wire format; a file for each API writes it (chat.go: chat-completions).
package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Script is what the server answers, request by request.
type Script struct {
	Replies []Reply `json:"replies"`
}

// Reply is one answer.
type Reply struct {
	Text     string `json:"text,omitempty"`
	Thinking string `json:"thinking,omitempty"`
	Tools    []Tool `json:"tools,omitempty"`
	// Finish is why the reply ends, in chat-completions' words; "" is tool_calls where there are tools, else stop.
	Finish string `json:"finish,omitempty"`

	Status  int    `json:"status,omitempty"`  // an error instead of a reply
	Message string `json:"message,omitempty"` // of the error

	Wait  Duration `json:"wait,omitempty"`  // before the first byte
	Pace  Duration `json:"pace,omitempty"`  // between two words of the text
	Cut   int      `json:"cut,omitempty"`   // the connection breaks off after so many words
	Times int      `json:"times,omitempty"` // the reply serves so many requests; 0 is one, -1 is all that are left

	InputTokens  int `json:"inputTokens,omitempty"`  // 0 is a guess
	OutputTokens int `json:"outputTokens,omitempty"` // 0 is a guess
}

// Tool is one tool call.
type Tool struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

// Duration is a time.Duration that JSON writes as Go does: "300ms".
type Duration time.Duration

// UnmarshalJSON reads a duration as Go writes it.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	v, err := time.ParseDuration(s)
	*d = Duration(v)
	return err
}

// MarshalJSON writes a duration as Go does.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// Parse reads a script: {"replies":[…]}.
func Parse(b []byte) (Script, error) {
	var s Script
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return s, fmt.Errorf("model script: %w", err)
	}
	return s, nil
}

// finish is why the reply ends.
func (r Reply) finish() string {
	switch {
	case r.Finish != "":
		return r.Finish
	case len(r.Tools) > 0:
		return "tool_calls"
	default:
		return "stop"
	}
}
