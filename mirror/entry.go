package mirror

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"time"
	"unicode/utf8"

	"arbe.0sk.ar/runner/internal/jsonscan"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// kindOther is the kind of an entry for a JSON object without a type.
const kindOther = "other"

// Sizes. A chat's text stands in its message, too, so that a long one is kept there alone and the text is its beginning: all entries of a
// file together stay near the file's size.
const (
	maxLine = thread.MaxEntry - 64<<10 // bytes of a line's JSON in an entry; the rest of the entry is small
	maxText = 8 << 10

	messageRoom = 1 << 20 // at least, for the message of a line that stands beside it
	maxStub     = 64 << 10

	payloadRest = 384 // what a payload mostly has beside its message or line: a guess, so that it is made in one piece
)

// Encoder turns the lines of a session file into entries, one for each line, in the file's order.
type Encoder struct {
	Namer
	Redact *thread.Redactor
	Author string

	// Prompt is the id of the chat that began the run; its line, the run's first user line, does not become a second chat.
	// "" where no run is mirrored. RunFrom is the index of the run's first line.
	Prompt  string
	RunFrom int

	// Subagent is the id of the session whose subagent's file this is; "" for any other file. Its turns are marked with it, and none of them is a chat.
	Subagent string

	decoder  session.Decoder
	prompted bool
	last     time.Time
	calls    []session.Call // since the last note
	rewriter session.Rewriter
}

// Encode returns the entry of the file's next line; false where the line was there before the file changed, and needs none. The entry shares no
// memory with the line.
func (e *Encoder) Encode(l session.Line) (thread.Entry, bool) {
	dec, name := e.next(l)
	if name.Again {
		return thread.Entry{}, false
	}
	return e.encode(l, dec, name), true
}

// encode returns the entry of a line that next has decoded and named.
func (e *Encoder) encode(l session.Line, dec session.Entry, name Name) thread.Entry {
	e.Redact.Refresh() // the line may have a secret that is newer than the last one's
	p := thread.Line{Session: &thread.SessionRef{ID: e.Session, Index: l.Start.Index}, SubagentOf: e.Subagent}
	if dec.Side && e.Subagent == "" {
		p.SubagentOf = e.Session // which keeps them among its own lines
	}
	if dec.ID != "" {
		p.Session.Entry = &dec.ID
	}
	if dec.Parent != "" {
		p.Session.Parent = &dec.Parent
	}
	switch {
	case name.Supersedes != "":
		p.Type, p.Kind, p.Supersedes = e.kind(thread.KindSession), thread.KindMigrated, name.Supersedes
	case dec.Kind == session.Text:
		e.text(&p, dec.Type, l)
	default:
		e.object(&p, dec, l)
	}
	entry := thread.Entry{ID: name.ID, TS: thread.Stamp(e.last), AuthorID: e.Author, Payload: p.AppendJSON(make([]byte, 0, len(p.Message)+len(p.Line)+len(p.Usage)+payloadRest))}
	if len(entry.Payload) > thread.MaxEntry-1<<10 {
		entry = stub(entry, e.Dialect.Prefix, "larger than the log takes")
	}
	return entry
}

// Skip takes the file's next line as Encode does, and makes no entry of it: the thread has one.
func (e *Encoder) Skip(l session.Line) {
	dec, name := e.next(l)
	if fresh := !name.Again && name.Supersedes == ""; fresh && dec.Kind == session.User && !dec.Side && e.Subagent == "" {
		e.isPrompt(l)
	}
}

// ahead returns an Encoder for the lines that follow. It leaves this one as it is.
func (e *Encoder) ahead() Encoder {
	return Encoder{Namer: e.Namer.ahead(), decoder: e.decoder.Clone(), last: e.last}
}

// next decodes the file's next line and names it.
func (e *Encoder) next(l session.Line) (dec session.Entry, name Name) {
	e.decoder.Dialect = e.Dialect
	dec = e.decoder.Next(l.Data)
	if e.noting && !dec.Side {
		e.calls = append(e.calls, dec.Calls...)
	}
	if !l.Held() {
		dec = session.Entry{Kind: session.Text, Type: thread.KindLong}
	}
	if name = e.Name(l, dec); name.Again {
		return dec, name
	}
	if at := dec.Time.UTC(); !at.IsZero() && at.Year() >= 0 && at.Year() < 10000 {
		e.last = at
	} else if e.last.IsZero() {
		e.last = time.Now()
	}
	return dec, name
}

// object fills in the payload of a line that is a JSON object.
func (e *Encoder) object(p *thread.Line, dec session.Entry, l session.Line) {
	// White space behind the object (the \r of CRLF) says nothing, and a raw one would disturb who splits on it.
	data := bytes.TrimSpace(l.Data)
	most := maxLine
	if !dec.Whole && len(dec.Message) > 0 {
		most -= messageRoom
	}
	line, cut := shorten(&e.rewriter, data, most, e.Redact)
	if cut || l.Cut {
		p.Truncated = true
	}
	if l.Cut {
		p.Bytes, p.SHA256 = l.Long, hex.EncodeToString(l.Sum[:])
	}
	if line == nil { // nothing but structure, and still too large
		p.Type, p.Kind, p.Bytes, p.SHA256 = e.kind(thread.KindSession), thread.KindStub, int64(len(l.Data)), digest(l.Data)
		return
	}
	if !utf8.Valid(line) {
		// JSON that travels is UTF-8. Readers get the line as the agent itself would read it, and the bytes as they stood.
		p.Encoding, p.Line = encode64(line)
		line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
	}
	if len(line) != len(data) || &line[0] != &data[0] {
		dec = e.decoder.Again(line, dec)
	}
	if !dec.Whole && len(dec.Message) > 0 {
		// Made of the line, so that it says things in other words: arguments that were a text are an object. The line says them whole.
		if dec.Message, _ = shorten(&e.rewriter, dec.Message, maxLine-len(line), e.Redact); dec.Message == nil {
			dec.Message = json.RawMessage("null")
		}
	}
	asItStood := func() {
		if p.Line == nil {
			p.Line = line
		}
	}
	whole := func() {
		if p.Message = dec.Message; !dec.Whole {
			asItStood()
		}
	}
	switch {
	case dec.Kind == session.User && p.SubagentOf != "":
		p.Type, p.Kind = e.kind(thread.KindSession), "user"
		asItStood()
	case dec.Kind == session.User && e.isPrompt(l):
		p.Type, p.Kind, p.Chat = e.kind(thread.KindSession), thread.KindPrompt, e.Prompt
		asItStood()
	case dec.Kind == session.User:
		text := beginning(dec.Text, maxText)
		p.Type, p.Text = thread.TypeChat, &text
		whole()
	case dec.Kind == session.Assistant:
		p.Type, p.StopReason = e.kind(thread.KindAssistant), dec.StopReason
		p.Provider, p.Model, p.Usage = dec.Provider, dec.Model, dec.Usage
		whole()
	case dec.Kind == session.ToolResult:
		p.Type, p.ToolCallID, p.ToolName, p.IsError = e.kind(thread.KindToolResult), dec.ToolCallID, dec.ToolName, &dec.IsError
		whole()
	default:
		if p.Type, p.Kind = e.kind(thread.KindSession), dec.Type; p.Kind == "" {
			p.Kind = kindOther
		}
		asItStood()
	}
}

// isPrompt reports whether a user line is the one that the run's prompt made. It is asked for each user line, in order.
func (e *Encoder) isPrompt(l session.Line) bool {
	if e.Prompt == "" || e.prompted || l.Start.Index < e.RunFrom && !e.Restarted() {
		return false
	}
	e.prompted = true
	return true
}

func (e *Encoder) kind(kind string) string { return e.Dialect.Prefix + "." + kind }

// text fills in the payload of a line that is no JSON object: its text, or its bytes where they are none.
func (e *Encoder) text(p *thread.Line, kind string, l session.Line) {
	p.Type, p.Kind = e.kind(thread.KindSession), kind
	data := l.Data
	if clean := e.Redact.Bytes(data); clean != nil {
		data = clean
	}
	if l.Long > 0 {
		data = e.Redact.Head(data)
		p.Truncated, p.Bytes, p.SHA256 = true, l.Long, hex.EncodeToString(l.Sum[:])
	} else if len(data) > maxLine/6 { // a byte can take six in JSON
		p.Truncated, p.Bytes, p.SHA256 = true, int64(len(data)), digest(data)
		data = data[:maxLine/6]
	}
	if p.Truncated {
		data = session.WholeRunes(data)
	}
	if utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 {
		p.Line = jsonscan.Quote(nil, data)
		return
	}
	p.Encoding, p.Line = encode64(data)
}

// encode64 is how bytes that are no text travel.
func encode64(data []byte) (encoding string, line json.RawMessage) {
	return thread.Base64, json.RawMessage(`"` + base64.StdEncoding.EncodeToString(data) + `"`)
}

// trimmed is the entry with its long strings cut, so that it gets through where there is less room than the log has.
func trimmed(e thread.Entry, prefix, reason string) thread.Entry {
	short, _ := shorten(new(session.Rewriter), e.Payload, maxStub, &thread.Redactor{})
	var p thread.Line
	if short == nil || json.Unmarshal(short, &p) != nil {
		return stub(e, prefix, reason)
	}
	p.Truncated = true
	e.Payload = p.AppendJSON(nil)
	return e
}

// stub is what stands for an entry that the server refuses: what it was and how large, without its content.
func stub(e thread.Entry, prefix, reason string) thread.Entry {
	var p thread.Line
	_ = json.Unmarshal(e.Payload, &p) // it is of our own making; of anything else nothing is kept
	e.Payload = thread.Line{
		Type: prefix + "." + thread.KindSession, Kind: thread.KindStub, Session: p.Session, Truncated: true, Reason: beginning(reason, 200),
		Bytes: int64(len(e.Payload)), SHA256: digest(e.Payload),
	}.AppendJSON(nil)
	return e
}

// beginning is the first n bytes of s, less what would be half a character, with a mark where something is left out.
func beginning(s string, n int) string {
	if len(s) <= n {
		return s
	}
	head := s[:n]
	for len(head) > 0 && !utf8.RuneStart(s[len(head)]) {
		head = head[:len(head)-1]
	}
	return head + cutMark([]byte(s))
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
