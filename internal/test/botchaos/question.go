package botchaos

import (
	"encoding/json"
	"regexp"
	"strings"
)

// Question is a request that a bot has made to its model.
type Question struct {
	Bot   string   // its name
	House string   // its name
	Asked []string // ids of the triggers that it answers
	Round int
	Gate  bool   // whether to answer at all
	Text  string // of the reply
	Whole bool   // the reply was complete
}

var (
	selfName = regexp.MustCompile(`^You are (\S+), a bot of the house "(\w*)"`)
	askedID  = regexp.MustCompile(`\[answer this\]\n\[(?:chat|reply) from [^\]]* id (\S+)\]`)
)

// Parse reads the body of a request in the form of Messages or chat-completions.
func Parse(body []byte) (q Question) {
	var request struct {
		System   json.RawMessage
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		ToolChoice json.RawMessage `json:"tool_choice"`
	}
	if json.Unmarshal(body, &request) != nil {
		return q
	}
	name := func(text string) {
		if m := selfName.FindStringSubmatch(text); m != nil {
			q.Bot, q.House = m[1], m[2]
		}
	}
	name(textsOf(request.System))
	for _, m := range request.Messages {
		text := textsOf(m.Content)
		switch m.Role {
		case "system", "developer":
			name(text)
		case "assistant":
			q.Round++
		case "user":
			found := askedID.FindAllStringSubmatch(text, -1)
			for _, f := range found {
				q.Asked = append(q.Asked, f[1])
			}
			if len(found) > 0 {
				q.Round = 0
			}
		}
	}
	q.Gate = strings.Contains(string(request.ToolChoice), `"decide"`)
	return q
}

// textsOf returns the text of a content: a string, or parts.
func textsOf(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(content, &parts) // it has no text then
	var all []string
	for _, p := range parts {
		all = append(all, p.Text)
	}
	return strings.Join(all, "\n")
}
