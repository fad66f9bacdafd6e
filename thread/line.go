package thread

import (
	"encoding/json"
	"strconv"
	"strings"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// SessionRef is the place of a mirrored line in its session.
type SessionRef struct {
	ID     string  `json:"id"`     // the session's
	Entry  *string `json:"entry"`  // the line's own id
	Parent *string `json:"parent"` // the id of the line before it in the tree
	Index  int     `json:"index"`  // lines before it in the file, the header included
}

// Line is the payload of a mirrored line. Which members there are depends on the type.
type Line struct {
	Type       string          `json:"type"`
	Kind       string          `json:"kind,omitempty"`  // <prefix>.session: the line's own type, or a Kind constant
	Chat       string          `json:"chat,omitempty"`  // kind prompt: the id of the chat that the line repeats
	Chats      []string        `json:"chats,omitempty"` // kind prompt: the ids of several chats that the line repeats
	Supersedes string          `json:"was,omitempty"`   // kind migrated: the id of the line's entry in the older format
	Text       *string         `json:"text,omitempty"`  // chat
	ToolCallID string          `json:"toolCallId,omitempty"`
	ToolName   string          `json:"toolName,omitempty"`
	IsError    *bool           `json:"isError,omitempty"`
	StopReason string          `json:"stopReason,omitempty"`
	Provider   string          `json:"provider,omitempty"`
	Model      string          `json:"model,omitempty"`
	Usage      json.RawMessage `json:"usage,omitempty"`
	Message    json.RawMessage `json:"message,omitempty"`
	Session    *SessionRef     `json:"session,omitempty"`    // none where another mirror wrote the entry
	SubagentOf string          `json:"subagentOf,omitempty"` // a subagent's line: the session that the subagent works for
	Encoding   string          `json:"encoding,omitempty"`   // base64 where line is bytes that are no text
	Line       json.RawMessage `json:"line,omitempty"`
	Truncated  bool            `json:"truncated,omitempty"`
	Bytes      int64           `json:"bytes,omitempty"`  // kinds long and stub: the line's length
	SHA256     string          `json:"sha256,omitempty"` // kinds long and stub: of the line
	Reason     string          `json:"reason,omitempty"` // kind stub: why the server refused the entry

	// Reaction is the id of the bot's reaction that the entry is a round or a result of. Such an entry is no line: no
	// mirror writes one.
	Reaction string `json:"-"`
}

// AppendJSON appends the payload as JSON, as json.Marshal does. It copies message, line and usage without parsing them:
// they are the bulk of a thread.
func (l Line) AppendJSON(b []byte) []byte {
	text := func(name, value string) {
		if value != "" {
			b = jsonscan.QuoteString(append(b, name...), value)
		}
	}
	raw := func(name string, value json.RawMessage) {
		if len(value) > 0 {
			b = append(append(b, name...), value...)
		}
	}
	b = jsonscan.QuoteString(append(b, `{"type":`...), l.Type)
	text(`,"kind":`, l.Kind)
	text(`,"chat":`, l.Chat)
	if len(l.Chats) > 0 {
		raw(`,"chats":`, Marshal(l.Chats))
	}
	text(`,"was":`, l.Supersedes)
	if l.Text != nil {
		b = jsonscan.QuoteString(append(b, `,"text":`...), *l.Text)
	}
	text(`,"toolCallId":`, l.ToolCallID)
	text(`,"toolName":`, l.ToolName)
	if l.IsError != nil {
		b = strconv.AppendBool(append(b, `,"isError":`...), *l.IsError)
	}
	text(`,"stopReason":`, l.StopReason)
	text(`,"provider":`, l.Provider)
	text(`,"model":`, l.Model)
	raw(`,"usage":`, l.Usage)
	raw(`,"message":`, l.Message)
	if s := l.Session; s != nil {
		b = jsonscan.QuoteString(append(b, `,"session":{"id":`...), s.ID)
		b = quoteOrNull(append(b, `,"entry":`...), s.Entry)
		b = quoteOrNull(append(b, `,"parent":`...), s.Parent)
		b = strconv.AppendInt(append(b, `,"index":`...), int64(s.Index), 10)
		b = append(b, '}')
	}
	text(`,"subagentOf":`, l.SubagentOf)
	text(`,"encoding":`, l.Encoding)
	raw(`,"line":`, l.Line)
	if l.Truncated {
		b = append(b, `,"truncated":true`...)
	}
	if l.Bytes != 0 {
		b = strconv.AppendInt(append(b, `,"bytes":`...), l.Bytes, 10)
	}
	text(`,"sha256":`, l.SHA256)
	text(`,"reason":`, l.Reason)
	return append(b, '}')
}

// ParseLine returns the payload of an entry of any type as a Line. The payload must be valid JSON, as it is where a
// server has checked it. Members that a Line does not have, or has with another type, are ignored. Message, Line and
// Usage share memory with the payload.
func ParseLine(payload []byte) Line {
	p, _ := ParseMirrored(payload)
	jsonscan.Members(payload, p.parseTurn)
	return p
}

// ParseMirrored is ParseLine without what repeats a part of the message or of the line: Text, ToolCallID, ToolName,
// IsError, StopReason, Provider, Model and Usage. It reports whether the payload is compact: JSON without white space
// between its tokens. Then Message and Line are.
func ParseMirrored(payload []byte) (p Line, compact bool) {
	compact, _ = jsonscan.Members(payload, func(key, v []byte) {
		switch string(key) {
		case "type":
			p.Type = jsonscan.String(v)
		case "kind":
			p.Kind = jsonscan.String(v)
		case "chat":
			p.Chat = jsonscan.String(v)
		case "chats":
			p.Chats = parseIDs(v)
		case "was":
			p.Supersedes = jsonscan.String(v)
		case "message":
			p.Message = v
		case "subagentOf":
			p.SubagentOf = jsonscan.String(v)
		case "encoding":
			p.Encoding = jsonscan.String(v)
		case "line":
			p.Line = v
		case "truncated":
			p.Truncated = string(v) == "true"
		case "bytes":
			p.Bytes, _ = strconv.ParseInt(string(v), 10, 64) // 0 for any other value
		case "sha256":
			p.SHA256 = jsonscan.String(v)
		case "reason":
			p.Reason = jsonscan.String(v)
		case "session":
			p.Session = parseRef(v)
		case "reaction":
			p.Reaction = parseReaction(v)
		}
	})
	return p, compact
}

// parseIDs returns the texts in an array.
func parseIDs(raw []byte) (ids []string) {
	jsonscan.Elements(raw, func(v []byte) {
		if jsonscan.IsString(v) {
			ids = append(ids, jsonscan.String(v))
		}
	})
	return ids
}

// parseReaction returns the id of the reaction in raw, "" where raw has none.
func parseReaction(raw []byte) (id string) {
	jsonscan.Members(raw, func(key, v []byte) {
		if string(key) == "id" {
			id = jsonscan.String(v)
		}
	})
	return id
}

// Names reports whether the line has chats on record: it is of kind prompt, or the stub of such a line.
func (l Line) Names() bool {
	_, kind, _ := strings.Cut(l.Type, ".")
	return kind == KindSession && (l.Kind == KindPrompt || l.Kind == KindStub) && (l.Chat != "" || len(l.Chats) > 0)
}

// Named returns the ids of the chats that the line repeats.
func (l Line) Named() []string {
	if l.Chat == "" {
		return l.Chats
	}
	return append([]string{l.Chat}, l.Chats...)
}

// Delivers returns the ids of the chats that a mirrored line reports as delivered. all: it is a turn of another mirror,
// which names none and answers all chats before it. The last round of a bot's reaction delivers those that it names.
func (l Line) Delivers() (ids []string, all bool) {
	switch {
	case l.Reaction != "" && isReply(l.Type):
		return l.Chats, false
	case l.Names():
		return l.Named(), false
	}
	return nil, l.Session == nil && l.SubagentOf == "" && isReply(l.Type)
}

// parseTurn sets a member that describes a turn.
func (p *Line) parseTurn(key, v []byte) {
	switch string(key) {
	case "text":
		if len(v) > 0 && v[0] == '"' {
			p.Text = new(jsonscan.String(v))
		}
	case "toolCallId":
		p.ToolCallID = jsonscan.String(v)
	case "toolName":
		p.ToolName = jsonscan.String(v)
	case "isError":
		p.IsError = new(string(v) == "true")
	case "stopReason":
		p.StopReason = jsonscan.String(v)
	case "provider":
		p.Provider = jsonscan.String(v)
	case "model":
		p.Model = jsonscan.String(v)
	case "usage":
		p.Usage = v
	}
}

// parseRef returns the SessionRef in raw, nil where raw is no object with members.
func parseRef(raw []byte) (ref *SessionRef) {
	jsonscan.Members(raw, func(key, v []byte) {
		if ref == nil {
			ref = &SessionRef{}
		}
		own := func() *string {
			if len(v) == 0 || v[0] != '"' {
				return nil
			}
			return new(jsonscan.String(v))
		}
		switch string(key) {
		case "id":
			ref.ID = jsonscan.String(v)
		case "entry":
			ref.Entry = own()
		case "parent":
			ref.Parent = own()
		case "index":
			ref.Index, _ = strconv.Atoi(string(v)) // 0 for any other value
		}
	})
	return ref
}

// IsSubagent reports whether the line is of a subagent's session: a file of its own, which no conversation
// continues.
func (l Line) IsSubagent() bool {
	return l.SubagentOf != "" && (l.Session == nil || l.Session.ID != l.SubagentOf)
}

func quoteOrNull(b []byte, s *string) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	return jsonscan.QuoteString(b, *s)
}
