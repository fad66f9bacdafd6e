// Package session reads the JSONL files in which coding agents keep their sessions.
//
// A Reader returns a file's lines and their positions while the agent is still writing it; a Watch waits for a change
// of the file. A Dialect is the format of one agent: it decodes lines into the vocabulary that all harnesses share
// (Entry), and makes the bytes of a line from its parts. A line of an unknown type is an Entry, too. The package writes
// no file and uses no network.
package session

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// Kind is the role of a line in the conversation.
type Kind int

// The kinds of a line.
const (
	Other      Kind = iota // anything else: a model change, a compaction, a label, an unknown type
	Header                 // the file's own header
	User                   // a turn that a person or another agent wrote
	Assistant              // an assistant turn
	ToolResult             // a tool's result
	Text                   // no JSON object at all
)

// Mark is the effect of a line on the state of its turn.
type Mark int

// The marks of a line.
const (
	NoMark  Mark = iota
	Prompt       // a turn begins with a prompt of a person or another agent
	Begin        // a turn begins for another reason
	Output       // assistant output, and the turn continues (it calls tools)
	Answer       // a tool's result: assistant output is due
	End          // the turn ended well
	Failure      // the turn ended with a failure on record
	Abort        // the turn was interrupted, on record
)

// Entry is one line, decoded. Its slices may point into the line, and are valid as long as the line is.
type Entry struct {
	Kind  Kind
	Type  string // the line's own type, "model_change"; for a message its role
	Known bool   // the dialect understands this type of line
	Mark  Mark

	ID        string    // the line's own id, "" where it has none
	Parent    string    // the line before it in the tree, "" for a root
	SessionID string    // of a Header, and of any other line that has it
	Command   bool      // it has a command that a person gave to the agent itself; no turn
	Cwd       string    // the agent's working directory from this line on; "" where the line has none
	Old       bool      // of a Header: the format is old, and an agent that continues the file rewrites it with ids
	Began     time.Time // of a Header: when the session began; zero where it has no time
	Side      bool      // a subagent's line: no part of the conversation
	Next      int       // in a format with numbered lines: the number of the next line
	Reply     string    // id of the model's reply that the line is a part of, where a reply takes several lines
	Time      time.Time

	// Message is the turn in the shape that all harnesses share, which is pi's: {role, content:
	// [text|thinking|toolCall|image …], …}.
	Message json.RawMessage
	// Whole reports that the line has nothing but ID, Parent, Time and Message: the dialect's Line makes it again from
	// them, equal as JSON.
	Whole bool

	Text         string          // of a User turn: its text, without images
	StopReason   string          // of an Assistant turn and of a turn's end, in pi's terms
	ErrorMessage string          // of a failure
	Provider     string          // of an Assistant turn, and of a line that sets it for later ones
	Model        string          // of an Assistant turn, and of a line that sets it for later ones
	Usage        json.RawMessage // tokens and cost of one reply
	Calls        []Call          // of an Assistant turn: the tool calls in it
	ToolCallID   string          // of a ToolResult
	ToolName     string          // of a ToolResult
	IsError      bool            // of a ToolResult
}

// textEntry is the Entry of a line that is no JSON object.
var textEntry = Entry{Kind: Text, Type: "text"}

// Call is a call of a tool.
type Call struct{ ID, Name string }

// Dialect is the session format of one agent. A func is nil where the agent's format has no use for it.
type Dialect struct {
	// Harness is the agent's name, the value of --harness and of the field harness of a run's signals: "claude-code".
	Harness string
	// Prefix begins the ids and types of this agent's entries on a thread: "pi".
	Prefix string
	// Decode decodes one line without those before it; a Decoder uses those, too. It never fails: a line that is not
	// understood is a Text or an Other.
	Decode func(line []byte) Entry
	// Outline is a fast Decode of the line's kind, place and tool calls: Kind, Known, ID, Parent, SessionID, Cwd, Old,
	// Began, Next, Calls and ToolCallID. The line must be JSON, which it does not check.
	Outline func(line []byte) Entry
	// Essence returns the content of a line without what the agent adds when it rewrites the file in a newer format.
	Essence func(line []byte) []byte
	// Line returns the line of a Whole entry, equal as JSON to the line that was decoded.
	Line func(id, parent string, at time.Time, message json.RawMessage) []byte
	// LineOutline returns the Outline of a line that Line returns.
	LineOutline func(id, parent string, message json.RawMessage) Entry

	// Header returns the first line of a new file. None of the funcs from here on returns a newline.
	Header func(sessionID, cwd string, at time.Time) []byte
	// SetCwd returns a header for another working directory, for an agent that works in that of the header.
	SetCwd func(header []byte, cwd string) []byte
	// Filler returns a line in place of a lost one: its children refer to it, and it refers to its parent.
	Filler func(id, parent string, at time.Time) []byte
	// Upgrade returns a line of an old format in the current one, as the agent itself upgrades it; a header has no id.
	// idAt returns the id of the file's line with an index.
	Upgrade func(line []byte, id, parent string, idAt func(int) string) []byte
	// Turn returns lines for a turn that has none: none for an empty turn. omitted names what of the turn they can't
	// hold ("thinking").
	Turn func(t Turn, at Place) (lines [][]byte, omitted string)
	// Amend returns the line that the session file at path needs at its end before the agent continues it; nil for
	// none. A nil func: it never needs one.
	Amend func(path string) ([]byte, error)
}

// checked returns the Decode of a dialect that decodes lines of JSON.
func checked(decode func(line []byte) Entry) func(line []byte) Entry {
	return func(line []byte) Entry {
		if !json.Valid(line) {
			return textEntry
		}
		return decode(line)
	}
}

// objectLine reports whether a line of JSON is an object.
func objectLine(line []byte) bool { return jsonscan.IsObject(bytes.TrimSpace(line)) }

// List is a list of harnesses, by their dialects. nil is the list that is built in.
type List []Dialect

var builtIn = List{Pi, Codex, Claude}

// Harnesses returns the list that is built in.
func Harnesses() List { return slices.Clone(builtIn) }

func (l List) all() List {
	if l == nil {
		return builtIn
	}
	return l
}

// Named returns the dialect of the harness with a name.
func (l List) Named(name string) (d Dialect, found bool) {
	for _, d := range l.all() {
		if d.Harness == name {
			return d, true
		}
	}
	return d, false
}

// Of returns the dialect of the harness that writes entries of a type: that of "claude.assistant" has the prefix
// "claude".
func (l List) Of(typ string) (d Dialect, found bool) {
	prefix, _, dotted := strings.Cut(typ, ".")
	for _, d := range l.all() {
		if dotted && d.Prefix == prefix {
			return d, true
		}
	}
	return d, false
}

// Names returns the harnesses' names.
func (l List) Names() (names []string) {
	for _, d := range l.all() {
		names = append(names, d.Harness)
	}
	return names
}

// Types returns the type of each harness's entries of a kind; for "" the beginning of all its types.
func (l List) Types(kind string) (types []string) {
	for _, d := range l.all() {
		types = append(types, d.Prefix+"."+kind)
	}
	return types
}

// Place is the place of a turn in a session.
type Place struct {
	ID     string // of the turn's line, in a format with ids: there a turn is one line
	Parent string // id of the line before it; "" for a root
	Reply  string // of an Assistant turn: the id of its reply, which successive turns may share
	Next   int    // the number of its first line; 0 in a format without numbers
}

// Turn is a turn that is known from a thread's entry alone, of any mirror. All but the Kind may be missing.
type Turn struct {
	Kind       Kind // User, Assistant or ToolResult
	Text       *string
	Message    json.RawMessage // in the shape that all harnesses share; members may have other types
	StopReason string
	Provider   string
	Model      string
	Usage      json.RawMessage
	ToolCallID string
	ToolName   string
	IsError    bool
	Time       time.Time
}
