// Package session reads the JSONL files in which coding agents keep their sessions.
//
// A Reader gives a file's lines with their places while the agent is still writing it; a Watch says when to look again.
// A Dialect knows one agent's lines: it decodes them into the vocabulary that all harnesses share (Entry), and puts a
// line together again from its parts. Nothing is dropped: a line that a dialect doesn't know is still an Entry. The
// package writes no session file and knows no network.
package session

import (
	"encoding/json"
	"time"
)

// Kind says what a line is to a reader of the conversation.
type Kind int

// The kinds of a line.
const (
	Other      Kind = iota // anything else: a model change, a compaction, a label, a type that is not known
	Header                 // the file's own header
	User                   // a turn that a person or another agent wrote
	Assistant              // an assistant turn
	ToolResult             // a tool's result
	Text                   // no JSON object at all
)

// Mark says what a line means for the end of the turn that it stands in.
type Mark int

// The marks of a line.
const (
	NoMark  Mark = iota
	Prompt       // a turn begins: somebody real asked for something
	Begin        // a turn begins, whatever for
	Output       // the agent said something, and the turn goes on (it calls tools)
	Answer       // a tool answered: the agent's next word is due
	End          // the turn ended well
	Failure      // the turn ended with a failure on record
	Abort        // the turn was interrupted, and the record says so
)

// Entry is one line, decoded. Its slices and texts may point into the line: they are good for as long as the line is.
type Entry struct {
	Kind  Kind
	Type  string // the line's own name for itself, "model_change"; for a message its role
	Known bool   // the dialect knows this type of line
	Mark  Mark

	ID        string    // the line's own id, "" where it has none
	Parent    string    // the line before it in the tree, "" for a root
	SessionID string    // of a Header, and of any line that says it
	Cwd       string    // of a line that says where the agent works from here on
	Old       bool      // of a Header: an agent that continues the file writes it anew first, with ids
	Began     time.Time // of a Header that says when the session began
	Side      bool      // a subagent's line: no part of the conversation
	Next      int       // where lines carry their number: that of the line to come
	Reply     string    // the reply of a model that the line is a part of, where a reply takes several lines
	Time      time.Time

	// Message is the turn in the shape that all harnesses share, which is pi's: {role, content:
	// [text|thinking|toolCall|image …], …}.
	Message json.RawMessage
	// Whole reports that ID, Parent, Time and Message are all that the line says: the dialect's Line gives it back from
	// them, equal as JSON.
	Whole bool

	Text         string          // of a User turn: what was said, without images
	StopReason   string          // of an Assistant turn and of a turn's end, in pi's words
	ErrorMessage string          // of what failed
	Provider     string          // of an Assistant turn, and of a line that says who will speak
	Model        string          // the same
	Usage        json.RawMessage // tokens and cost of one reply
	Calls        []Call          // of an Assistant turn: the tool calls in it
	ToolCallID   string          // of a ToolResult
	ToolName     string          // of a ToolResult
	IsError      bool            // of a ToolResult
}

// Call is a call of a tool.
type Call struct{ ID, Name string }

// Dialect is how one agent writes its lines. A func that is nil is for something that this agent never does, or doesn't
// need.
type Dialect struct {
	// Prefix begins the ids and types of this agent's entries on a thread: "pi".
	Prefix string
	// Decode says what a line is, by itself; a Decoder knows the lines before it, too. It is total: a line that makes
	// no sense is a Text or an Other.
	Decode func(line []byte) Entry
	// Essence returns the part of a line that stays the same when the agent rewrites the file in a newer format.
	Essence func(line []byte) []byte
	// Line returns the line of a Whole entry, equal as JSON to the one that was decoded.
	Line func(id, parent string, at time.Time, message json.RawMessage) []byte

	// What a session file is made of where it is made anew, without newlines: its header; the header for another
	// directory, where the agent goes by that and not by the directory that it is started in; a line that stands for
	// one that was lost, so that its children find their way to its parent; a line (or header, without id) of an old
	// format as the agent itself would bring it up to date, idAt being the id of the file's line with an index; and the
	// lines of a turn that no line is known of, none where it says nothing, and what of the turn they can't say
	// ("thinking").
	Header  func(sessionID, cwd string, at time.Time) []byte
	SetCwd  func(header []byte, cwd string) []byte
	Filler  func(id, parent string, at time.Time) []byte
	Upgrade func(line []byte, id, parent string, idAt func(int) string) []byte
	// Turn returns the lines for a turn of another agent or mirror, none where the turn has no content, and the part of
	// the turn that they can't express ("thinking"), "" for none.
	Turn func(t Turn, at Place) (lines [][]byte, omitted string)
}

// Dialects returns the dialects of all agents.
func Dialects() []Dialect { return []Dialect{Pi, Codex, Claude} }

// Place is where in a session file a converted turn goes.
type Place struct {
	ID     string // of the line, where lines have ids
	Parent string // the id of the line before it, "" for a root
	Reply  string // of an Assistant turn: the id of the reply that it and the Assistant turns right before it are parts of
	Next   int    // the number of its first line, 0 where lines have none
}

// Turn is a turn that is converted: only its entry on a thread is known. All but the Kind may be missing.
type Turn struct {
	Kind       Kind // User, Assistant or ToolResult
	Text       *string
	Message    json.RawMessage // in the shape that all harnesses share, more or less
	StopReason string
	Provider   string
	Model      string
	Usage      json.RawMessage
	ToolCallID string
	ToolName   string
	IsError    bool
	Time       time.Time
}
