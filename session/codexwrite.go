package session

import (
	"encoding/json"
	"time"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// Codex session files that hydrate writes have what codex 0.169.0 needs to resume in its own form, and no more. In a
// "paginated" file each line has its ordinal.

// codexWriter is whom a header that we make names as its writer.
const codexWriter = "0.169.0"

func codexLine(at time.Time, ordinal *int, typ string, payload any) []byte {
	b, _ := jsonscan.Marshal(struct { // what is put in marshals
		Timestamp string `json:"timestamp"`
		Ordinal   *int   `json:"ordinal,omitempty"`
		Type      string `json:"type"`
		Payload   any    `json:"payload"`
	}{at.UTC().Format(piTime), ordinal, typ, payload})
	return b
}

// codexHeader names no provider: codex refuses to resume with another one than the header's.
func codexHeader(sessionID, cwd string, at time.Time) []byte {
	return codexLine(at, new(int), "session_meta", struct {
		ID          string `json:"id"`
		Timestamp   string `json:"timestamp"`
		Cwd         string `json:"cwd"`
		Originator  string `json:"originator"`
		CLIVersion  string `json:"cli_version"`
		HistoryMode string `json:"history_mode"`
	}{sessionID, at.UTC().Format(piTime), cwd, "codex_exec", codexWriter, "paginated"})
}

// codexTurn writes a turn part by part, as codex does. What another model thought is left out: codex could only send on
// what its provider has sealed.
func codexTurn(t Turn, at Place) (lines [][]byte, omitted string) {
	m := t.spoken()
	item := func(payload any) {
		var ordinal *int
		if n := at.Next + len(lines); at.Next > 0 {
			ordinal = &n
		}
		lines = append(lines, codexLine(t.Time, ordinal, "response_item", payload))
	}
	type part struct {
		Type     string `json:"type"`
		Text     string `json:"text,omitempty"`
		ImageURL string `json:"image_url,omitempty"`
	}
	content := func(kind string) (all []part) {
		for _, b := range m.Content {
			switch {
			case b.Type == "text" && b.Text != nil && *b.Text != "":
				all = append(all, part{Type: kind, Text: *b.Text})
			case b.Type == "image" && b.Data != "":
				all = append(all, part{Type: "input_image", ImageURL: "data:" + b.MimeType + ";base64," + b.Data})
			}
		}
		return all
	}
	type spoken struct {
		Type    string `json:"type"`
		Role    string `json:"role"`
		Content []part `json:"content"`
	}
	switch t.Kind {
	case User:
		if all := content("input_text"); len(all) > 0 {
			item(spoken{"message", "user", all})
		}
	case Assistant:
		if all := content("output_text"); len(all) > 0 {
			item(spoken{"message", "assistant", all})
		}
		for _, b := range m.Content {
			if b.Type == "toolCall" {
				item(struct {
					Type      string `json:"type"`
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
					CallID    string `json:"call_id"`
				}{"function_call", b.Name, string(orEmpty(b.Arguments)), b.ID})
			}
		}
	case ToolResult:
		var output any = m.Content.text()
		if all := content("input_text"); len(all) > 1 || len(all) == 1 && all[0].ImageURL != "" {
			output = all
		}
		item(struct {
			Type   string `json:"type"`
			CallID string `json:"call_id"`
			Output any    `json:"output"`
		}{"function_call_output", m.ToolCallID, output})
	}
	return lines, m.Content.omitted()
}

// orEmpty returns a tool call's arguments; an empty object for what is no object.
func orEmpty(arguments json.RawMessage) json.RawMessage {
	if len(arguments) == 0 || arguments[0] != '{' {
		return json.RawMessage("{}")
	}
	return arguments
}
