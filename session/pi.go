package session

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// Pi is the dialect of pi: version 3 as 0.78 and 0.87 write it, with what 1.x adds (system messages, context edits,
// usage lines) and what versions 1 and 2 leave out (ids and parents).
var Pi = Dialect{
	Harness: "pi", Prefix: "pi", Decode: checked(decodePi), Outline: outlinePi,
	Essence: piEssence, Line: piLine, LineOutline: piLineOutline,
	Header: PiHeader, SetCwd: piSetCwd, Filler: piFiller, Upgrade: piUpgrade, Turn: piTurn,
}

// piTypes are the line types that pi writes, 0.78.0 to 1.5.2.
var piTypes = set(
	"session", "message", "model_change", "thinking_level_change", "compaction", "branch_summary", "custom",
	"custom_message", "label", "session_info",
	"context_edit", "usage", // 1.x
)

// piRoles are the roles of pi's messages. hookMessage is the name of custom in versions 1 and 2.
var piRoles = set(
	"user", "assistant", "toolResult", "bashExecution", "custom", "hookMessage", "branchSummary", "compactionSummary",
	"system", // 1.x
)

// piTime is how pi writes times; a thread's timestamps have the same form.
const piTime = "2006-01-02T15:04:05.000Z"

func decodePi(line []byte) Entry {
	e, stamp, exact := scanPi(line)
	if at, err := time.Parse(time.RFC3339, stamp); err == nil {
		e.Time = at
		e.Whole = exact && !at.IsZero() && stamp == at.UTC().Format(piTime)
	}
	return e
}

func outlinePi(line []byte) Entry {
	e, _, _ := scanPi(line)
	return e
}

func piLineOutline(id, parent string, message json.RawMessage) Entry {
	e := Entry{Type: "message", ID: id, Parent: parent}
	if jsonscan.IsObject(message) {
		e.Message = message
		decodePiMessage(&e)
	}
	return e
}

// scanPi decodes a line, which is JSON, but for its time. stamp is its timestamp. exact reports that the line is a
// message, and has no more than ID, Parent, Message and the timestamp.
func scanPi(line []byte) (e Entry, stamp string, exact bool) {
	if !objectLine(line) {
		return textEntry, "", false
	}
	var typ string
	var parent, message []byte
	version := 1   // has no number
	extra := false // members beyond those that a message line always has
	jsonscan.Members(line, func(key, v []byte) {
		switch string(key) {
		case "type":
			typ = jsonscan.String(v)
		case "id":
			e.ID = jsonscan.String(v)
		case "parentId":
			parent, e.Parent = v, jsonscan.String(v)
		case "timestamp":
			stamp = jsonscan.String(v)
		case "message":
			message = v
		case "cwd":
			e.Cwd, extra = jsonscan.String(v), true
		case "version":
			if n, err := strconv.Atoi(string(v)); err == nil {
				version = n
			}
			extra = true
		default:
			extra = true
		}
	})
	e.Type, e.Known = typ, piTypes[typ]
	switch typ {
	case "session":
		if e.ID == "" {
			e.Known = false
			return e, stamp, false
		}
		// Version 2 has ids already: what changes on the way to 3 is one role's name.
		e.Kind, e.SessionID, e.Old = Header, e.ID, version < 2
	case "message":
		if !jsonscan.IsObject(message) {
			e.Known = false
			return e, stamp, false
		}
		e.Message = message
		// a lone surrogate decodes to U+FFFD
		same := func(s string) bool { return s != "" && !strings.ContainsRune(s, '\uFFFD') }
		exact = !extra && same(e.ID) && (string(parent) == "null" || same(e.Parent))
		decodePiMessage(&e)
	}
	return e, stamp, exact
}

// decodePiMessage decodes the message of a line.
func decodePiMessage(e *Entry) {
	var role string
	var content []byte
	jsonscan.Members(e.Message, func(key, v []byte) {
		switch string(key) {
		case "role":
			role = jsonscan.String(v)
		case "content":
			content = v
		case "stopReason":
			e.StopReason = jsonscan.String(v)
		case "errorMessage":
			e.ErrorMessage = jsonscan.String(v)
		case "provider":
			e.Provider = jsonscan.String(v)
		case "model":
			e.Model = jsonscan.String(v)
		case "usage":
			if jsonscan.IsObject(v) {
				e.Usage = v
			}
		case "toolCallId":
			e.ToolCallID = jsonscan.String(v)
		case "toolName":
			e.ToolName = jsonscan.String(v)
		case "isError":
			e.IsError = string(v) == "true"
		}
	})
	e.Type, e.Known = role, piRoles[role]
	switch role {
	case "user":
		e.Kind, e.Mark, e.Text = User, Prompt, piText(content)
	case "assistant":
		e.Kind, e.Calls = Assistant, piCalls(content)
		switch e.StopReason {
		case "stop", "length":
			e.Mark = End
		case "error":
			e.Mark = Failure
		case "aborted":
			e.Mark = Abort
		default: // toolUse; and what 1.x adds, deferred and pending, is no end either
			e.Mark = Output
		}
	case "toolResult":
		e.Kind, e.Mark = ToolResult, Answer
	}
}

// piText returns the text of a user message: its content where that is a string, or the text blocks in it.
func piText(content []byte) string {
	if jsonscan.IsString(content) {
		return jsonscan.String(content)
	}
	var parts []string
	jsonscan.Elements(content, func(block []byte) {
		if f := fields(block); str(f["type"]) == "text" {
			parts = append(parts, str(f["text"]))
		}
	})
	return strings.Join(parts, "\n")
}

// piCalls returns the tool calls in a message's content.
func piCalls(content []byte) []Call {
	var calls []Call
	jsonscan.Elements(content, func(block []byte) {
		var typ string
		var call Call
		jsonscan.Members(block, func(key, v []byte) {
			switch string(key) {
			case "type":
				typ = jsonscan.String(v)
			case "id":
				call.ID = jsonscan.String(v)
			case "name":
				call.Name = jsonscan.String(v)
			}
		})
		if typ == "toolCall" {
			calls = append(calls, call)
		}
	})
	return calls
}

// piEssence returns a line without the members that pi adds when it moves a file of version 1 to version 3.
func piEssence(line []byte) []byte {
	var m map[string]json.RawMessage
	if json.Unmarshal(line, &m) != nil {
		return line
	}
	for _, name := range []string{"id", "parentId", "firstKeptEntryIndex", "firstKeptEntryId"} {
		delete(m, name)
	}
	b, _ := json.Marshal(m) // its members are sorted, and JSON
	return b
}
