package mirror

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"

	"arbe.0sk.ar/runner/internal/jsonscan"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// kindOther is the kind of an entry for a JSON object without a type.
const kindOther = "other"

// Sizes in bytes. A chat has its text twice, beside its message and in it; beside it the text is cut to maxText. So all
// entries of a file together stay near the file's size.
const (
	maxLine = thread.MaxEntry - 64<<10 // of a line's JSON in an entry; the rest of the entry is small
	maxText = 8 << 10

	messageRoom = 1 << 20 // at least, for the message of an entry that also has the line
	maxStub     = 64 << 10

	payloadRest = 384 // of a payload beside its message or line, mostly: a guess, for one allocation
)

// Encoder encodes the lines of a session file into entries, one for each line, in the file's order.
type Encoder struct {
	Namer
	Redact *redact.Redactor
	Author string

	// Prompt is the id of the chat that began the run: the run's first user line does not become a second chat. ""
	// where no run is mirrored. Before are the ids of the chats that stand before the prompt in that line. RunFrom is
	// the index of the run's first line.
	Prompt  string
	Before  []string
	RunFrom int

	// Delivered, where there is one, returns the ids of the chats that a line of a live run has on record: it repeats
	// them. Prompt is "" then. It gets each line of the run before the line can be posted, possibly more than once, and
	// returns the same for the same line. The Mirror is locked meanwhile.
	Delivered func(session.Line, session.Entry) []string

	// Subagent is set for the file of a subagent: the id of the session that it belongs to. The file's turns are marked
	// with it, and none is a chat.
	Subagent string

	decoder  session.Decoder
	prompted bool
	chats    []string // of the line that was decoded last
	last     time.Time
	calls    []session.Call // since the last note
	rewriter session.Rewriter
}

// Encode returns the entry of the file's next line; false where the line has one since before the file changed. The
// entry shares no memory with the line.
func (e *Encoder) Encode(l session.Line) (thread.Entry, bool) {
	dec, name := e.next(l)
	if name.Again {
		return thread.Entry{}, false
	}
	return e.encode(l, dec, name), true
}

// encode returns the entry of a line that next has decoded and named.
func (e *Encoder) encode(l session.Line, dec session.Entry, name Name) thread.Entry {
	e.Redact.Refresh() // the line may have a newer secret
	p := thread.Line{Session: &thread.SessionRef{ID: e.Session, Index: l.Start.Index}, SubagentOf: e.Subagent}
	if dec.Side && e.Subagent == "" {
		p.SubagentOf = e.Session // its subagents' lines are among its own
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
	room := make([]byte, 0, len(p.Message)+len(p.Line)+len(p.Usage)+payloadRest)
	entry := thread.Entry{ID: name.ID, TS: thread.Stamp(e.last), AuthorID: e.Author, Payload: p.AppendJSON(room)}
	if len(entry.Payload) > thread.MaxEntry-1<<10 {
		entry = stub(entry, e.Dialect.Prefix, "larger than the log takes")
	}
	return entry
}

// Skip takes the file's next line as Encode does, without an entry: the thread has it.
func (e *Encoder) Skip(l session.Line) {
	dec, name := e.next(l)
	if fresh := !name.Again && name.Supersedes == ""; fresh && (dec.Kind == session.User || dec.Command) &&
		!dec.Side && e.Subagent == "" {
		e.isPrompt(l)
	}
}

// ahead returns an Encoder at the same line, to decode and name the lines that follow independently of this one.
func (e *Encoder) ahead() Encoder {
	return Encoder{
		Namer: e.Namer.ahead(), decoder: e.decoder.Clone(), last: e.last, Delivered: e.Delivered, RunFrom: e.RunFrom,
	}
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
	e.chats = nil
	if name = e.Name(l, dec); name.Again {
		return dec, name
	}
	if e.Delivered != nil && name.Supersedes == "" && (l.Start.Index >= e.RunFrom || e.Restarted()) {
		e.chats = e.Delivered(l, dec)
	}
	if at := dec.Time.UTC(); !at.IsZero() && at.Year() >= 0 && at.Year() < 10000 {
		e.last = at
	} else if e.last.IsZero() {
		e.last = time.Now()
	}
	return dec, name
}

// object fills in the payload of a line that is a JSON object. What the payload's other members do not hold, p.Line
// does: the entry gives the line back.
func (e *Encoder) object(p *thread.Line, dec session.Entry, l session.Line) {
	line, dec := e.fit(p, dec, l)
	if line == nil {
		return
	}
	p.Type = e.kind(thread.KindSession)
	switch {
	case len(e.chats) == 1:
		p.Kind, p.Chat = thread.KindPrompt, e.chats[0]
	case len(e.chats) > 1:
		p.Kind, p.Chats = thread.KindPrompt, e.chats
	case dec.Kind == session.User && p.SubagentOf != "":
		p.Kind = thread.KindUser
	case (dec.Kind == session.User || dec.Command && p.SubagentOf == "") && e.isPrompt(l):
		p.Kind = thread.KindPrompt
		if len(e.Before) > 0 {
			p.Chats = append(slices.Clone(e.Before), e.Prompt)
		} else {
			p.Chat = e.Prompt
		}
	case dec.Kind == session.User:
		text := beginning(dec.Text, maxText)
		p.Type, p.Text, p.Message = thread.TypeChat, &text, dec.Message
	case dec.Kind == session.Assistant:
		p.Type, p.StopReason, p.Message = e.kind(thread.KindAssistant), dec.StopReason, dec.Message
		p.Provider, p.Model, p.Usage = dec.Provider, dec.Model, dec.Usage
	case dec.Kind == session.ToolResult:
		p.Type, p.Message = e.kind(thread.KindToolResult), dec.Message
		p.ToolCallID, p.ToolName, p.IsError = dec.ToolCallID, dec.ToolName, &dec.IsError
	default:
		p.Kind = cmp.Or(dec.Type, kindOther)
	}
	if p.Line == nil && (p.Message == nil || !dec.Whole) {
		p.Line = line
	}
}

// fit returns a line's JSON without secrets, as UTF-8 and small enough for an entry, and what it decodes to. It notes
// in p what it changed. A line that can't be made small enough is nil: its payload is a stub then.
func (e *Encoder) fit(p *thread.Line, dec session.Entry, l session.Line) ([]byte, session.Entry) {
	// White space behind the object (the \r of CRLF) is dropped: a raw \r misleads a reader that splits on it.
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
	if line == nil { // too large with all strings cut
		p.Type, p.Kind = e.kind(thread.KindSession), thread.KindStub
		p.Bytes, p.SHA256 = int64(len(l.Data)), digest(l.Data)
		return nil, dec
	}
	if !utf8.Valid(line) {
		// JSON in transit is UTF-8. Readers get the line as the agent itself reads it, and the original bytes.
		p.Encoding, p.Line = encode64(line)
		line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
	}
	if len(line) != len(data) || &line[0] != &data[0] { // another slice: the line was changed
		dec = e.decoder.Again(line, dec)
	}
	if !dec.Whole && len(dec.Message) > 0 {
		// The message was built from the line, and is shortened on its own: it may differ from the line, as where
		// arguments that are a string there are an object here. The line goes with it.
		if dec.Message, _ = shorten(&e.rewriter, dec.Message, maxLine-len(line), e.Redact); dec.Message == nil {
			dec.Message = json.RawMessage("null")
		}
	}
	return line, dec
}

// isPrompt reports whether a user line, or that of a command, is that of the run's prompt: the run's first. It is
// called for each such line, in order.
func (e *Encoder) isPrompt(l session.Line) bool {
	if e.Prompt == "" || e.prompted || l.Start.Index < e.RunFrom && !e.Restarted() {
		return false
	}
	e.prompted = true
	return true
}

func (e *Encoder) kind(kind string) string { return e.Dialect.Prefix + "." + kind }

// text fills in the payload of a line that is no JSON object: its text, or its bytes in base64 where they are no text.
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

// encode64 returns bytes as a JSON string in base64, and the name of that encoding.
func encode64(data []byte) (encoding string, line json.RawMessage) {
	return thread.Base64, json.RawMessage(`"` + base64.StdEncoding.EncodeToString(data) + `"`)
}

// trimmed returns the entry with its long strings cut, for a server or proxy with a lower limit than the log's.
func trimmed(e thread.Entry, prefix, reason string) thread.Entry {
	short, _ := shorten(new(session.Rewriter), e.Payload, maxStub, &redact.Redactor{})
	var p thread.Line
	if short == nil || json.Unmarshal(short, &p) != nil {
		return stub(e, prefix, reason)
	}
	p.Truncated = true
	e.Payload = p.AppendJSON(nil)
	return e
}

// stub returns the entry that replaces a refused one under its id: its place in the session, the chats that it repeats,
// size and hash, and the reason.
func stub(e thread.Entry, prefix, reason string) thread.Entry {
	var p thread.Line
	_ = json.Unmarshal(e.Payload, &p) // an Encoder's payload is JSON
	e.Payload = thread.Line{
		Type: prefix + "." + thread.KindSession, Kind: thread.KindStub, Chat: p.Chat, Chats: p.Chats,
		Session: p.Session, Truncated: true,
		Reason: beginning(reason, 200), Bytes: int64(len(e.Payload)), SHA256: digest(e.Payload),
	}.AppendJSON(nil)
	return e
}

// beginning returns the first n bytes of s, without half a character at the end, and a mark where s is longer.
func beginning(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return string(session.WholeRunes([]byte(s[:n]))) + cutMark([]byte(s))
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
