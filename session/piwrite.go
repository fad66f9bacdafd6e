package session

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// What pi's session files are made of where we make them.

// PiHeader returns the first line of a new pi session, without a newline. pi 0.78.0 writes every line at once into a
// file that has one; into a file of its own it writes nothing before the first reply. Without a cwd pi works where it
// is started: JSON can't hold a path that is no UTF-8.
func PiHeader(sessionID, cwd string, at time.Time) []byte {
	header := struct {
		Type      string  `json:"type"`
		Version   int     `json:"version"`
		ID        string  `json:"id"`
		Timestamp string  `json:"timestamp"`
		Cwd       *string `json:"cwd,omitempty"`
	}{"session", 3, sessionID, at.UTC().Format(piTime), &cwd}
	if !utf8.ValidString(cwd) {
		header.Cwd = nil
	}
	line, _ := json.Marshal(header) // strings always marshal
	return line
}

// piLine writes the line of a message as pi does.
func piLine(id, parent string, at time.Time, message json.RawMessage) []byte {
	line := make([]byte, 0, len(message)+len(id)+len(parent)+128) // 94 for what is the same in all lines
	line = appendPiPlace(append(line, `{"type":"message",`...), id, parent, at)
	return append(append(append(line, `,"message":`...), message...), '}')
}

// piFiller returns a line that pi keeps in the tree and shows to no model: what an extension might have stored.
func piFiller(id, parent string, at time.Time) []byte {
	return append(appendPiPlace([]byte(`{"type":"custom","customType":"arbe.lost",`), id, parent, at), '}')
}

// appendPiPlace appends the members that hold a line's place in the tree, and its time.
func appendPiPlace(b []byte, id, parent string, at time.Time) []byte {
	b = append(jsonscan.QuoteString(append(b, `"id":`...), id), `,"parentId":`...)
	if parent == "" {
		b = append(b, "null"...)
	} else {
		b = jsonscan.QuoteString(b, parent)
	}
	return append(appendPiTime(append(b, `,"timestamp":"`...), at), '"')
}

// appendPiTime appends a time as piTime has it. AppendFormat takes a third of the time that it takes to write a line.
func appendPiTime(b []byte, at time.Time) []byte {
	at = at.UTC()
	year, month, day := at.Date()
	if year < 0 || year > 9999 {
		return at.AppendFormat(b, piTime)
	}
	hour, minute, second := at.Clock()
	b = appendTwo(appendTwo(b, year/100), year%100)
	b = appendTwo(append(b, '-'), int(month))
	b = appendTwo(append(b, '-'), day)
	b = appendTwo(append(b, 'T'), hour)
	b = appendTwo(append(b, ':'), minute)
	b = appendTwo(append(b, ':'), second)
	ms := at.Nanosecond() / 1e6
	return append(appendTwo(append(b, '.', byte('0'+ms/100)), ms%100), 'Z')
}

// appendTwo appends a number below 100 with two digits.
func appendTwo(b []byte, n int) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }

func quoted(s string) string { return string(jsonscan.QuoteString(nil, s)) }

func piSetCwd(header []byte, cwd string) []byte {
	return change(header, func(m map[string]json.RawMessage) { m["cwd"] = json.RawMessage(quoted(cwd)) })
}

// piUpgrade brings a line of version 1 to version 3, as pi 0.78.0 does when it loads such a file: lines get ids, a
// compaction names the first entry that it keeps by its id, and one role has another name.
func piUpgrade(line []byte, id, parent string, idAt func(int) string) []byte {
	return change(line, func(m map[string]json.RawMessage) {
		if id == "" {
			m["version"] = json.RawMessage("3")
			return
		}
		m["id"], m["parentId"] = json.RawMessage(quoted(id)), json.RawMessage("null")
		if parent != "" {
			m["parentId"] = json.RawMessage(quoted(parent))
		}
		if i, err := strconv.Atoi(string(m["firstKeptEntryIndex"])); err == nil {
			delete(m, "firstKeptEntryIndex")
			if kept := idAt(i); kept != "" {
				m["firstKeptEntryId"] = json.RawMessage(quoted(kept))
			}
		}
		if message := m["message"]; bytes.Contains(message, []byte(`"hookMessage"`)) {
			m["message"] = change(message, func(m map[string]json.RawMessage) {
				if string(m["role"]) == `"hookMessage"` {
					m["role"] = json.RawMessage(`"custom"`)
				}
			})
		}
	})
}

// change returns a JSON object after f has changed its members; any other value as it is.
func change(object []byte, f func(map[string]json.RawMessage)) []byte {
	var m map[string]json.RawMessage
	if json.Unmarshal(object, &m) != nil || m == nil {
		return object
	}
	f(m)
	b, err := jsonscan.Marshal(m)
	if err != nil {
		return object
	}
	return b
}

func piTurn(t Turn, at Place) (lines [][]byte, omitted string) {
	message, ok := piMessage(t)
	if !ok {
		return nil, ""
	}
	return [][]byte{piLine(at.ID, at.Parent, t.Time, message)}, ""
}

// piMessage returns a turn's message as pi loads it: a reply's content is a list and it has a usage with all its
// numbers, without which pi 0.78.0 ends with an error.
func piMessage(t Turn) (json.RawMessage, bool) {
	m := map[string]json.RawMessage{}
	if json.Unmarshal(t.Message, &m) != nil || m == nil {
		m = map[string]json.RawMessage{}
	}
	set := func(name, value string) {
		if _, has := m[name]; !has && value != "" {
			m[name] = json.RawMessage(quoted(value))
		}
	}
	content := m["content"]
	if t.Kind != User || !jsonscan.IsString(content) {
		if m["content"] = piContent(content); len(content) == 0 && t.Text != nil && *t.Text != "" {
			m["content"] = piContent([]byte(quoted(*t.Text)))
		}
	}
	if _, has := m["timestamp"]; !has {
		m["timestamp"] = strconv.AppendInt(nil, t.Time.UnixMilli(), 10)
	}
	switch t.Kind {
	case User:
		m["role"] = json.RawMessage(`"user"`)
	case Assistant:
		m["role"] = json.RawMessage(`"assistant"`)
		set("provider", t.Provider)
		set("model", t.Model)
		set("provider", "unknown")
		set("model", "unknown")
		set("api", "unknown")
		set("stopReason", t.StopReason)
		set("stopReason", "stop")
		usage := m["usage"]
		if !jsonscan.IsObject(usage) {
			usage = t.Usage
		}
		m["usage"] = piUsage(usage)
	case ToolResult:
		m["role"] = json.RawMessage(`"toolResult"`)
		set("toolCallId", t.ToolCallID)
		set("toolName", t.ToolName)
		if _, has := m["isError"]; !has {
			m["isError"] = strconv.AppendBool(nil, t.IsError)
		}
	}
	if t.Kind == User && len(m["content"]) <= len("[]") {
		return nil, false
	}
	b, err := jsonscan.Marshal(m)
	return b, err == nil
}

// piContent returns a message's content as a list of blocks.
func piContent(content []byte) json.RawMessage {
	blocks := []json.RawMessage{}
	add := func(raw []byte) {
		switch {
		case jsonscan.IsObject(raw):
			blocks = append(blocks, raw)
		case jsonscan.IsString(raw):
			blocks = append(blocks, json.RawMessage(`{"type":"text","text":`+string(raw)+`}`))
		}
	}
	if jsonscan.Elements(content, add); len(blocks) == 0 && len(content) > 0 && content[0] != '[' {
		add(content)
	}
	b, err := jsonscan.Marshal(blocks)
	if err != nil {
		return json.RawMessage("[]")
	}
	return b
}

// piUsage returns a usage with all the numbers that pi adds up.
func piUsage(usage []byte) json.RawMessage {
	var u struct {
		Input       json.Number     `json:"input"`
		Output      json.Number     `json:"output"`
		CacheRead   json.Number     `json:"cacheRead"`
		CacheWrite  json.Number     `json:"cacheWrite"`
		TotalTokens json.Number     `json:"totalTokens"`
		Cost        json.RawMessage `json:"cost"`
	}
	if json.Unmarshal(usage, &u) != nil {
		u.Cost = nil // what made no sense is nought
	}
	for _, n := range []*json.Number{&u.Input, &u.Output, &u.CacheRead, &u.CacheWrite, &u.TotalTokens} {
		if *n == "" {
			*n = "0"
		}
	}
	if !jsonscan.IsObject(u.Cost) {
		u.Cost = json.RawMessage(`{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}`)
	}
	b, err := jsonscan.Marshal(u)
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return b
}
