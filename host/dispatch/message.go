package dispatch

import (
	"encoding/json"
	"strings"

	"arbe.0sk.ar/runner/host/model"
)

// message is a message in pi's form, as rounds and results have it on the thread.
type message struct {
	Role    string `json:"role"`
	Content []part `json:"content"`
}

// part is a part of a message. Which members there are depends on the type.
type part struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Thinking  string          `json:"thinking,omitempty"`
	Signature string          `json:"thinkingSignature,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Broken    string          `json:"broken,omitempty"` // what a model has written in place of arguments
}

// The types of parts.
const (
	partText     = "text"
	partThinking = "thinking"
	partCall     = "toolCall"
)

// partsOf returns the parts of a round's message. What it does not know is left out.
func partsOf(raw json.RawMessage) (parts []model.Part) {
	var m message
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	for _, p := range m.Content {
		switch p.Type {
		case partText:
			parts = append(parts, model.Part{Text: p.Text})
		case partThinking:
			parts = append(parts, model.Part{Thinking: &model.Thinking{Text: p.Thinking, Signature: p.Signature}})
		case partCall:
			parts = append(parts, model.Part{Call: &model.Call{
				ID: p.ID, Name: p.Name, Arguments: p.Arguments, Broken: p.Broken,
			}})
		}
	}
	return parts
}

// callsOf returns the calls of a round's message.
func callsOf(raw json.RawMessage) (calls []model.Call) {
	for _, p := range partsOf(raw) {
		if p.Call != nil {
			calls = append(calls, *p.Call)
		}
	}
	return calls
}

// textOf returns the text of a message.
func textOf(raw json.RawMessage) string {
	var text []string
	for _, p := range partsOf(raw) {
		if p.Text != "" {
			text = append(text, p.Text)
		}
	}
	return strings.Join(text, "\n")
}

// messageOf returns the message of a reply, in pi's form.
func messageOf(parts []model.Part) message {
	m := message{Role: "assistant", Content: []part{}}
	for _, p := range parts {
		switch {
		case p.Call != nil:
			c := part{
				Type: partCall, ID: p.Call.ID, Name: p.Call.Name, Arguments: p.Call.Arguments, Broken: p.Call.Broken,
			}
			if c.Arguments == nil {
				c.Arguments = json.RawMessage("{}")
			}
			m.Content = append(m.Content, c)
		case p.Thinking != nil:
			m.Content = append(m.Content, part{
				Type: partThinking, Thinking: p.Thinking.Text, Signature: p.Thinking.Signature,
			})
		case p.Text != "":
			m.Content = append(m.Content, part{Type: partText, Text: p.Text})
		}
	}
	return m
}
