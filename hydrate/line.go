package hydrate

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"arbe.0sk.ar/runner/internal/jsonscan"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Entry is an entry of a thread, parsed for the rebuild of a session.
type Entry struct {
	thread.Entry
	Fields thread.Line // the payload's, as thread.ParseMirrored returns them
	Line   []byte      // the session line that the entry holds, without a newline; nil where it holds none

	json bool // Line is JSON; false where that is not known
	turn bool // of a chat: isTurn

	// Where Line was made of a message: the message, compact.
	message []byte
}

// Parse parses an entry. Its Line is equal as JSON to the agent's line, but for text that was redacted or cut, and
// compact: claude-code reads no other. It is nil for a stub, for a line that was too long to be read, and for an entry
// that another mirror or the mirror of another harness wrote.
func Parse(e thread.Entry, d session.Dialect) Entry {
	p, isCompact := thread.ParseMirrored(e.Payload)
	compact := func(raw []byte) []byte {
		if isCompact {
			return raw[:len(raw):len(raw)]
		}
		return jsonscan.Compact(raw)
	}
	parsed := Entry{Entry: e, Fields: p}
	switch {
	case p.Session == nil, p.Kind == thread.KindStub, p.Kind == thread.KindLong:
	case p.Type != thread.TypeChat && !ofHarness(p.Type, d):
	case jsonscan.IsString(p.Line):
		parsed.Line = textOf(p)
	case len(p.Line) > 0:
		parsed.Line, parsed.json = compact(p.Line), true
	case len(p.Message) > 0 && p.Session.Entry != nil && d.Line != nil:
		parsed.message = compact(p.Message)
		parsed.Line = d.Line(*p.Session.Entry, deref(p.Session.Parent), e.Time(), parsed.message)
	}
	return parsed
}

// outline returns the entry's line, decoded as far as a rebuild needs it. A line from a payload is JSON: it was
// checked when the payload was stored.
func (e Entry) outline(d session.Dialect) session.Entry {
	switch {
	case e.message != nil:
		return d.LineOutline(*e.Fields.Session.Entry, deref(e.Fields.Session.Parent), e.message)
	case e.json:
		return d.Outline(e.Line)
	}
	return d.Decode(e.Line)
}

// ofHarness reports whether a payload type has the harness's prefix.
func ofHarness(typ string, d session.Dialect) bool {
	return strings.HasPrefix(typ, d.Prefix+".")
}

// textOf returns a line that is no JSON object: it travels as a string, or as base64 where it is no text.
func textOf(p thread.Line) []byte {
	var text string
	if json.Unmarshal(p.Line, &text) != nil {
		return nil
	}
	if p.Encoding != thread.Base64 {
		return []byte(text)
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return b
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
