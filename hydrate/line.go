package mirror

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	"arbe.0sk.ar/runner/internal/jsonscan"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Was is the id of the entry whose line an entry stands for since the agent has moved the file to a newer format; "" for any other entry.
func Was(e thread.Entry) string {
	if !bytes.Contains(e.Payload, []byte(`"kind":"`+kindMoved+`"`)) {
		return ""
	}
	var p thread.Line
	if json.Unmarshal(e.Payload, &p) != nil || p.Kind != kindMoved {
		return ""
	}
	return p.Was
}

// Aside reports whether an entry is of the session of a subagent: a file of its own, which no conversation goes on from.
func Aside(e thread.Entry) bool {
	return bytes.Contains(e.Payload, []byte(`"subagentOf":"`)) && aside(parseLine(e.Payload))
}

func aside(p thread.Line) bool {
	return p.SubagentOf != "" && (p.Session == nil || p.Session.ID != p.SubagentOf)
}

// Rebuild returns the line that an entry of ours stands for, equal as JSON to the agent's but for what was redacted
// or cut, and compact, which claude asks for; false where the entry doesn't hold it: a stub, a long line, or an
// entry that another mirror wrote.
func Rebuild(e thread.Entry, d session.Dialect) ([]byte, bool) {
	var p thread.Line
	if json.Unmarshal(e.Payload, &p) != nil {
		return nil, false
	}
	return rebuild(e, p, d)
}

// parseLine reads a payload that the server has checked, of whatever type, as a Line: what is not as in a Line is left out. Its raw members are not copies.
func parseLine(payload []byte) (p thread.Line) {
	jsonscan.Members(payload, func(key, v []byte) {
		switch string(key) {
		case "type":
			p.Type = jsonscan.String(v)
		case "kind":
			p.Kind = jsonscan.String(v)
		case "chat":
			p.Chat = jsonscan.String(v)
		case "was":
			p.Was = jsonscan.String(v)
		case "text":
			if len(v) > 0 && v[0] == '"' {
				text := jsonscan.String(v)
				p.Text = &text
			}
		case "toolCallId":
			p.ToolCallID = jsonscan.String(v)
		case "toolName":
			p.ToolName = jsonscan.String(v)
		case "isError":
			is := string(v) == "true"
			p.IsError = &is
		case "stopReason":
			p.StopReason = jsonscan.String(v)
		case "provider":
			p.Provider = jsonscan.String(v)
		case "model":
			p.Model = jsonscan.String(v)
		case "usage":
			p.Usage = v
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
			p.Bytes, _ = strconv.ParseInt(string(v), 10, 64) // 0 where it is none
		case "reason":
			p.Reason = jsonscan.String(v)
		case "session":
			p.Session = parseRef(v)
		}
	})
	return p
}

// parseRef reads where in its session a line stood; nil where that is not said.
func parseRef(raw []byte) (ref *thread.SessionRef) {
	jsonscan.Members(raw, func(key, v []byte) {
		if ref == nil {
			ref = &thread.SessionRef{}
		}
		own := func() *string {
			if len(v) == 0 || v[0] != '"' {
				return nil
			}
			s := jsonscan.String(v)
			return &s
		}
		switch string(key) {
		case "id":
			ref.ID = jsonscan.String(v)
		case "entry":
			ref.Entry = own()
		case "parent":
			ref.Parent = own()
		case "index":
			ref.Index, _ = strconv.Atoi(string(v)) // 0 where it is none
		}
	})
	return ref
}

// rebuild is Rebuild for an entry whose payload is p.
func rebuild(e thread.Entry, p thread.Line, d session.Dialect) ([]byte, bool) {
	if p.Session == nil {
		return nil, false
	}
	if p.Type != thread.TypeChat && !strings.HasPrefix(p.Type, d.Prefix+".") {
		return nil, false
	}
	switch {
	case p.Kind == kindStub || p.Kind == kindLong:
		return nil, false
	case len(p.Line) > 0 && p.Line[0] == '"':
		var text string
		if json.Unmarshal(p.Line, &text) != nil {
			return nil, false
		}
		if p.Encoding != base64Name {
			return []byte(text), true
		}
		b, err := base64.StdEncoding.DecodeString(text)
		return b, err == nil
	case len(p.Line) > 0:
		return jsonscan.Compact(p.Line), true
	case len(p.Message) > 0 && p.Session.Entry != nil && d.Line != nil:
		parent := ""
		if p.Session.Parent != nil {
			parent = *p.Session.Parent
		}
		return d.Line(*p.Session.Entry, parent, e.Time(), jsonscan.Compact(p.Message)), true
	}
	return nil, false
}
