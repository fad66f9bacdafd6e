package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// What claude's session files are made of where we make them. claude 2.1.329 reads them only as compact JSON.

// claudePlace are the members with the place of a line in the session.
type claudePlace struct {
	Parent    *string `json:"parentUuid"`
	Side      bool    `json:"isSidechain"`
	Type      string  `json:"type"`
	UUID      string  `json:"uuid"`
	Timestamp string  `json:"timestamp"`
}

func claudeAt(typ, id, parent string, at time.Time) claudePlace {
	p := claudePlace{Type: typ, UUID: id, Timestamp: at.UTC().Format(piTime)}
	if parent != "" {
		p.Parent = &parent
	}
	return p
}

// claudeFiller returns a line that claude keeps in the chain and shows to no model.
func claudeFiller(id, parent string, at time.Time) []byte {
	b, _ := jsonscan.Marshal(struct {
		claudePlace
		Subtype string `json:"subtype"`
		Content string `json:"content"`
		Level   string `json:"level"`
	}{claudeAt("system", id, parent, at), "informational", "a line of this session was lost", "info"})
	return b
}

// claudeTurn writes a turn as one line. What another model thought is left out: the API takes only what it has signed
// itself.
func claudeTurn(t Turn, at Place) (lines [][]byte, omitted string) {
	m := t.spoken()
	var content []any
	for _, b := range m.Content {
		switch {
		case b.Type == "text" && b.Text != nil && strings.TrimSpace(*b.Text) != "": // the API refuses an empty one
			content = append(content, struct {
				Type string `json:"type"`
				Text string `json:"text"`
			}{"text", *b.Text})
		case b.Type == "image" && b.Data != "" && t.Kind != Assistant:
			type source struct {
				Type      string `json:"type"`
				MediaType string `json:"media_type"`
				Data      string `json:"data"`
			}
			content = append(content, struct {
				Type   string `json:"type"`
				Source source `json:"source"`
			}{"image", source{"base64", b.MimeType, b.Data}})
		case b.Type == "toolCall" && t.Kind == Assistant:
			content = append(content, struct {
				Type  string          `json:"type"`
				ID    string          `json:"id"`
				Name  string          `json:"name"`
				Input json.RawMessage `json:"input"`
			}{"tool_use", claudeCall(b.ID), b.Name, orEmpty(b.Arguments)})
		}
	}
	if t.Kind == ToolResult {
		content = []any{struct {
			Type      string `json:"type"`
			ToolUseID string `json:"tool_use_id"`
			Content   []any  `json:"content"`
			IsError   bool   `json:"is_error"`
		}{"tool_result", claudeCall(m.ToolCallID), content, t.IsError}}
	}
	if len(content) == 0 {
		return nil, m.Content.omitted()
	}
	message := struct {
		Role    string `json:"role"`
		ID      string `json:"id,omitempty"`
		Type    string `json:"type,omitempty"`
		Model   string `json:"model,omitempty"`
		Content []any  `json:"content"`
		Stop    string `json:"stop_reason,omitempty"`
	}{Role: "user", Content: content}
	typ := "user"
	if t.Kind == Assistant {
		typ, message.Role, message.Type, message.Model = "assistant", "assistant", "message", m.Model
		message.ID, message.Stop = "msg_"+at.Reply, "end_turn"
		if len(m.Content.calls()) > 0 {
			message.Stop = "tool_use"
		}
	}
	b, _ := jsonscan.Marshal(struct {
		claudePlace
		Message any `json:"message"`
	}{claudeAt(typ, at.ID, at.Parent, t.Time), message})
	return [][]byte{b}, m.Content.omitted()
}

// claudeID matches the id of a call that the API takes.
var claudeID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// claudeCall returns a call's id, or another one in place of an id that the API does not take.
func claudeCall(id string) string {
	if claudeID.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "toolu_" + hex.EncodeToString(sum[:12])
}

// claudeLeaf returns a last-prompt line that names the newest turn of a session, where claude would continue from an
// older one; nil where it would not.
//
// The turns are a tree, and claude 2.1.329 continues from a leaf. It notes one in a last-prompt line, in its field
// leafUuid, at each orderly end, at each start and every 64 KiB. It continues from the file's last turn only if that
// descends from the leaf in the last such line. A claude that was killed in a wait for a retry has noted the api_error
// line; the next one drops that line and continues from its parent. If it is killed, too, the third one finds a noted
// leaf from which the last turn does not descend: it continues from there, and without all turns of the second one.
// A busy claude may write the note ahead of the lines that it is about: then the leaf descends from the last turn.
func claudeLeaf(path string) ([]byte, error) {
	from, noted, err := claudeNoted(path)
	if err != nil || noted.LeafUUID == "" {
		return nil, err
	}
	parents, last := map[string]string{}, ""
	for line, err := range Lines(path, from) {
		if err != nil {
			return nil, err
		}
		var l claudeTreeLine
		if !l.decode(line.Data) || l.UUID == "" || l.IsSidechain {
			continue
		}
		parents[l.UUID] = l.ParentUUID
		switch l.Type {
		case "user", "assistant", "attachment":
			last = l.UUID
		}
	}
	if last == "" {
		return nil, nil
	}
	descends := func(id, from string) bool {
		for steps := 0; id != from; steps++ {
			parent, behind := parents[id]
			if !behind || steps > len(parents) {
				return false
			}
			id = parent
		}
		return true
	}
	if descends(last, noted.LeafUUID) || descends(noted.LeafUUID, last) {
		return nil, nil
	}
	return json.Marshal(struct {
		Type      string `json:"type"` // claude looks for a line that begins with it
		LeafUUID  string `json:"leafUuid"`
		SessionID string `json:"sessionId,omitempty"`
	}{"last-prompt", last, noted.SessionID})
}

// claudeTreeLine has the fields of a line that make the tree.
type claudeTreeLine struct {
	Type, Subtype    string
	UUID, ParentUUID string
	IsSidechain      bool
	LeafUUID         string
	Explicit         bool
	SessionID        string
}

// decode decodes a line, and reports whether it is an object. A field of another type stays empty.
func (l *claudeTreeLine) decode(line []byte) bool {
	err := json.Unmarshal(line, l)
	_, mismatch := errors.AsType[*json.UnmarshalTypeError](err)
	return len(line) > 0 && line[0] == '{' && (err == nil || mismatch)
}

// claudeNoted returns the last line of a session that notes a leaf, and the position behind it. LeafUUID is "" where
// none counts: a compaction and a conversation that was taken back to its beginning are later.
func claudeNoted(path string) (from Position, noted claudeTreeLine, err error) {
	for line, err := range Lines(path, Position{}) {
		if err != nil {
			return from, noted, err
		}
		if !bytes.Contains(line.Data, []byte(`"last-prompt"`)) && !bytes.Contains(line.Data, []byte(`"compact_boundary"`)) {
			continue
		}
		var l claudeTreeLine
		if !l.decode(line.Data) {
			continue
		}
		switch {
		case l.Type == "last-prompt" && (l.LeafUUID != "" || l.Explicit):
			from, noted = line.End, l
		case l.Type == "system" && l.Subtype == "compact_boundary" && !l.IsSidechain:
			from, noted = line.End, claudeTreeLine{}
		}
	}
	return from, noted, nil
}
