package session

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// message is a turn in the shape that all harnesses share, where it is made from an agent's own.
type message struct {
	Role         string `json:"role"`
	ToolCallID   string `json:"toolCallId,omitempty"`
	IsError      *bool  `json:"isError,omitempty"`
	Content      blocks `json:"content"`
	Model        string `json:"model,omitempty"`
	StopReason   string `json:"stopReason,omitempty"`
	ErrorMessage string `json:"errorMessage,omitempty"`
	Timestamp    int64  `json:"timestamp,omitempty"` // milliseconds since 1970
}

// block is one part of a message's content: a text, a thinking, an image or a toolCall. Which members it has depends on
// that.
type block struct {
	Type              string          `json:"type"`
	Text              *string         `json:"text,omitempty"`
	Thinking          *string         `json:"thinking,omitempty"`
	ThinkingSignature string          `json:"thinkingSignature,omitempty"`
	MimeType          string          `json:"mimeType,omitempty"`
	Data              string          `json:"data,omitempty"` // base64
	ID                string          `json:"id,omitempty"`
	Name              string          `json:"name,omitempty"`
	Arguments         json.RawMessage `json:"arguments,omitempty"` // an object
}

// blocks are a message's content. Others' messages have it in all forms: one that is a text is one block, and what
// makes no sense is left out.
type blocks []block

// UnmarshalJSON reads content of any form.
func (b *blocks) UnmarshalJSON(raw []byte) error {
	*b = nil
	add := func(raw []byte) {
		switch {
		case jsonscan.IsString(raw):
			*b = append(*b, textBlock(jsonscan.String(raw)))
		case jsonscan.IsObject(raw):
			var one block
			if json.Unmarshal(raw, &one) == nil {
				*b = append(*b, one)
			}
		}
	}
	if len(raw) > 0 && raw[0] == '[' {
		jsonscan.Elements(raw, add)
	} else {
		add(raw)
	}
	return nil
}

// MarshalJSON writes a list, empty where there is nothing.
func (b blocks) MarshalJSON() ([]byte, error) {
	if b == nil {
		return []byte("[]"), nil
	}
	return jsonscan.Marshal([]block(b))
}

func textBlock(s string) block { return block{Type: "text", Text: &s} }

func callBlock(id, name string, arguments json.RawMessage) block {
	if !jsonscan.IsObject(arguments) {
		arguments, _ = jsonscan.Marshal(map[string]json.RawMessage{"input": orNull(arguments)}) // raw JSON marshals
	}
	return block{Type: "toolCall", ID: id, Name: name, Arguments: arguments}
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// imageBlock returns the image of a data URL, or a text that names the image that is elsewhere.
func imageBlock(url string) block {
	head, data, ok := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
	if !ok || !strings.HasPrefix(url, "data:") {
		return textBlock("[image: " + url + "]")
	}
	return block{Type: "image", MimeType: head, Data: data}
}

// text returns the joined texts of the blocks.
func (b blocks) text() string {
	var parts []string
	for _, x := range b {
		if x.Type == "text" && x.Text != nil {
			parts = append(parts, *x.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// omitted returns the part of the content that no other harness can express, "" for none: a model's thoughts, which its
// provider has sealed.
func (b blocks) omitted() string {
	for _, x := range b {
		if x.Type == "thinking" {
			return "thinking"
		}
	}
	return ""
}

// calls returns the tool calls among the blocks.
func (b blocks) calls() []Call {
	var calls []Call
	for _, x := range b {
		if x.Type == "toolCall" {
			calls = append(calls, Call{x.ID, x.Name})
		}
	}
	return calls
}

// speak makes e a turn with the content.
func (e *Entry) speak(content blocks) {
	m := message{Content: content}
	if !e.Time.IsZero() {
		m.Timestamp = e.Time.UnixMilli()
	}
	switch e.Kind {
	case User:
		m.Role, e.Text = "user", content.text()
	case Assistant:
		m.Role, e.Calls = "assistant", content.calls()
		m.StopReason, m.ErrorMessage, m.Model = e.StopReason, e.ErrorMessage, e.Model
	case ToolResult:
		m.Role, m.ToolCallID, m.IsError = "toolResult", e.ToolCallID, &e.IsError
	}
	e.Message, _ = jsonscan.Marshal(m) // it is made of JSON
}

// spoken reads a turn's message, whatever form it has. Its blocks are those that make sense.
func (t Turn) spoken() message {
	var m message
	if json.Unmarshal(t.Message, &m) != nil { // one member of it makes no sense: the content may
		m = message{}
		jsonscan.Members(t.Message, func(key, v []byte) {
			if string(key) == "content" {
				_ = m.Content.UnmarshalJSON(v) // it never fails
			}
		})
	}
	if len(m.Content) == 0 && t.Text != nil && *t.Text != "" {
		m.Content = blocks{textBlock(*t.Text)}
	}
	m.ToolCallID = cmp.Or(m.ToolCallID, t.ToolCallID)
	m.StopReason = cmp.Or(m.StopReason, t.StopReason)
	m.Model = cmp.Or(m.Model, t.Model)
	return m
}

// usage is the cost of a reply, in the names that all harnesses share: tokens that were read anew, read from the cache,
// written to it, and generated.
type usage struct {
	Input       int64 `json:"input"`
	Output      int64 `json:"output"`
	CacheRead   int64 `json:"cacheRead"`
	CacheWrite  int64 `json:"cacheWrite"`
	TotalTokens int64 `json:"totalTokens"`
}

func (u usage) json() json.RawMessage {
	u.TotalTokens = u.Input + u.Output + u.CacheRead + u.CacheWrite
	b, _ := json.Marshal(u) // numbers always marshal
	return b
}

// fields returns the raw members of an object by name; no members of any other value. Of a name that comes twice it has
// the last value.
func fields(object []byte) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	jsonscan.Members(object, func(key, v []byte) { m[string(key)] = v })
	return m
}

// str returns the string in a raw value; "" for any other value.
func str(raw json.RawMessage) string { return jsonscan.String(raw) }

// stamp returns the time in a raw RFC 3339 string; the zero time for any other value.
func stamp(raw json.RawMessage) time.Time {
	at, _ := time.Parse(time.RFC3339, str(raw))
	return at
}
