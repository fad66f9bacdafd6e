package hydrate

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"arbe.0sk.ar/runner/internal/jsonscan"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Rebuild returns the line that an entry of ours, whose payload is p, stands for, equal as JSON to the agent's but for what was redacted
// or cut, and compact, which claude asks for; false where the entry doesn't hold it: a stub, a long line, or an
// entry that another mirror wrote.
func Rebuild(e thread.Entry, p thread.Line, d session.Dialect) ([]byte, bool) {
	if p.Session == nil {
		return nil, false
	}
	if p.Type != thread.TypeChat && !strings.HasPrefix(p.Type, d.Prefix+".") {
		return nil, false
	}
	switch {
	case p.Kind == thread.KindStub || p.Kind == thread.KindLong:
		return nil, false
	case len(p.Line) > 0 && p.Line[0] == '"':
		var text string
		if json.Unmarshal(p.Line, &text) != nil {
			return nil, false
		}
		if p.Encoding != thread.Base64 {
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
