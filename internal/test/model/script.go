// Package model is a model server that answers by a script. Agents under test and the demo use it as a provider: each
// request takes a reply of the script, which can be text, tool calls, an error, a delay or a connection that breaks
// off.
//
// A Reply is independent of any wire format; a file for each API writes it: chat.go is chat-completions, responses.go
// is OpenAI's Responses, messages.go is Anthropic's Messages.
package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Script has the server's replies, request by request: a request takes the first reply that is not used up and
// whose When it has.
type Script struct {
	Replies []Reply `json:"replies"`
}

// Reply is one answer. With neither text nor tools it is an empty one.
type Reply struct {
	// When is a text that a request has in its JSON, "" for any: it distinguishes the requests of agents that send them
	// at the same time.
	When string `json:"when,omitempty"`

	Text     string `json:"text,omitempty"`
	Thinking string `json:"thinking,omitempty"`
	Tools    []Tool `json:"tools,omitempty"`
	// Finish is why the reply ends, in chat-completions' words; "" is tool_calls where there are tools, else stop.
	Finish string `json:"finish,omitempty"`

	Status  int    `json:"status,omitempty"`  // an error instead of a reply
	Message string `json:"message,omitempty"` // of the error
	// Code is of the error in chat-completions, which has none without it; in Messages it is the type, in place of the
	// status's own.
	Code       string `json:"code,omitempty"`
	RetryAfter string `json:"retryAfter,omitempty"` // the header of an error

	// Raw is a stream as it is sent, in place of all that a reply has. It ends regularly.
	Raw string `json:"raw,omitempty"`

	Wait Duration `json:"wait,omitempty"` // before the first byte
	Pace Duration `json:"pace,omitempty"` // between two words of the text
	Cut  int      `json:"cut,omitempty"`  // the connection breaks off after so many words, of the thinking and the text; 0 is never
	// Error is an error event in the stream, in place of its end: after Cut words, 0 is at once.
	Error string `json:"error,omitempty"`
	Times int    `json:"times,omitempty"` // the reply serves so many requests; 0 is one, -1 is all that are left

	InputTokens  int `json:"inputTokens,omitempty"`  // 0 is a guess
	OutputTokens int `json:"outputTokens,omitempty"` // 0 is a guess
	CachedTokens int `json:"cachedTokens,omitempty"` // of the input, read from a cache
}

// Tool is one tool call. Of a name with a dot, Responses makes a namespace and a name.
type Tool struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
	// Input is the text of a freeform tool, in place of Arguments. Responses alone has such tools.
	Input string `json:"input,omitempty"`
	// Raw is the text of the arguments in a stream, in place of Arguments. It may be no JSON.
	Raw  string `json:"raw,omitempty"`
	NoID bool   `json:"noID,omitempty"` // the call has no id, in chat-completions and Messages
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

// tokens returns the reply's reported cost, as the n-th of its server.
func (r Reply) tokens(n int) (in, out int) {
	in, out = r.InputTokens, r.OutputTokens
	if in == 0 {
		in = 100 + 10*n
	}
	if out == 0 {
		out = len(strings.Fields(r.Text)) + 10*len(r.Tools)
	}
	return in, out
}

// arguments are a tool call's as JSON, or as what is sent in its place.
func (t Tool) arguments() string {
	if t.Raw != "" {
		return t.Raw
	}
	if t.Arguments == nil {
		return "{}"
	}
	b, err := json.Marshal(t.Arguments)
	if err != nil {
		panic(err) // they came from JSON
	}
	return string(b)
}
