package provider

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/host/model"
)

// Turns returns messages as the APIs take them: those of one role in a row are one, results come before the rest, and
// there are no blank texts, no thinking without a signature, and no messages without parts.
func Turns(messages []model.Message) (all []model.Message) {
	for _, m := range messages {
		var parts []model.Part
		for _, p := range m.Parts {
			if !blank(p) && (p.Thinking == nil || p.Thinking.Signature != "") {
				parts = append(parts, p)
			}
		}
		if n := len(all); n > 0 && all[n-1].Role == m.Role {
			all[n-1].Parts = append(all[n-1].Parts, parts...)
		} else if len(parts) > 0 {
			all = append(all, model.Message{Role: m.Role, Parts: parts})
		}
	}
	for _, m := range all {
		slices.SortStableFunc(m.Parts, func(a, b model.Part) int { return after(a) - after(b) })
	}
	return all
}

// after is 0 for what stands first in a message.
func after(p model.Part) int {
	if p.Result != nil {
		return 0
	}
	return 1
}

// blank reports whether a part is a text, and has nothing in it. Anthropic refuses texts of white space, too.
func blank(p model.Part) bool {
	return p == model.Part{Text: p.Text} && strings.TrimSpace(p.Text) == ""
}

// Call returns a call with arguments as a model has written them. Without any they are an empty object.
func Call(id, name, arguments string) *model.Call {
	c := &model.Call{ID: id, Name: name}
	switch b := bytes.TrimSpace([]byte(arguments)); {
	case len(b) == 0:
		c.Arguments = json.RawMessage("{}")
	case b[0] == '{' && json.Valid(b):
		c.Arguments = b
	default:
		c.Broken = arguments
	}
	return c
}

// Arguments returns a call's arguments as they go back to a model: an empty object in place of broken ones, which
// templates of open models and Anthropic do not take.
func Arguments(c *model.Call) json.RawMessage {
	if len(c.Arguments) == 0 {
		return json.RawMessage("{}")
	}
	return c.Arguments
}

// Output returns the text of a result. A blank one is replaced: Anthropic refuses it.
func Output(r *model.Result) string {
	if strings.TrimSpace(r.Text) == "" {
		return "(no output)"
	}
	return r.Text
}

// Complete brings a reply that has ended into its form. Blank texts are left out. A call without an id, or with that of
// an earlier one, gets an id of its own, since a result has to name its call. Where the model has come to an
// end, Stop is StopCalls exactly if there are calls: after a forced one OpenAI has "stop".
func Complete(r *model.Reply) {
	r.Parts = slices.DeleteFunc(r.Parts, blank)
	seen := map[string]bool{}
	for _, p := range r.Parts {
		if p.Call == nil {
			continue
		}
		if p.Call.ID == "" || seen[p.Call.ID] {
			p.Call.ID = "call_" + rand.Text()
		}
		seen[p.Call.ID] = true
	}
	if r.Stop == model.StopEnd || r.Stop == model.StopCalls {
		r.Stop = model.StopEnd
		if len(seen) > 0 {
			r.Stop = model.StopCalls
		}
	}
}
