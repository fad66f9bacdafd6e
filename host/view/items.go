package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Items returns the items of one entry, without what other entries add to them. It returns none for an entry that is
// not shown: most lines of a session beside its turns, heartbeats, and payloads of an unknown type. harnesses are those
// whose lines may be on the thread.
func Items(e thread.Entry, harnesses session.List) []Item {
	p := thread.ParseLine(e.Payload)
	m := maker{entry: e, line: p}
	m.dialect, _ = harnesses.Of(p.Type)
	prefix, kind, _ := strings.Cut(p.Type, ".")
	switch {
	case p.Type == thread.TypeChat:
		m.chat()
	case prefix == "signal":
		m.signal()
	case kind == thread.KindAssistant:
		m.assistant()
	case kind == thread.KindToolResult:
		m.result()
	case p.Names():
		m.delivery()
		if p.Kind == thread.KindStub {
			m.session()
		}
	case kind == thread.KindSession:
		m.session()
	}
	return m.items
}

// maker makes the items of one entry.
type maker struct {
	entry   thread.Entry
	line    thread.Line
	dialect session.Dialect // of the line; zero for none, and for one of an unknown harness
	images  int             // so far
	reply   bool            // it is the last round of a bot's reaction
	items   []Item
}

// add adds an item of the entry.
func (m *maker) add(i Item) {
	i.ID, i.Entry, i.Time = m.entry.ID, m.entry.ID, m.entry.Time()
	if n := len(m.items); n > 0 {
		i.ID += "/" + strconv.Itoa(n)
	}
	i.Cut = m.line.Truncated
	prefix, _, dotted := strings.Cut(m.line.Type, ".")
	switch {
	case !dotted || prefix == "signal":
	case m.line.Reaction != "":
		i.Author, i.Model = m.entry.AuthorID, m.line.Model
		i.Reaction = &Reaction{ID: m.line.Reaction, Reply: m.reply && (i.Kind == KindText || i.Kind == KindStop)}
	default:
		i.Harness = cmp.Or(m.dialect.Harness, prefix)
		i.Model = m.line.Model
		i.Subagent = m.subagent()
		_, i.answers = m.line.Delivers()
	}
	m.items = append(m.items, i)
}

// subagent returns the subagent that the line is of; nil for a line of the main conversation.
func (m *maker) subagent() *Subagent {
	if m.line.SubagentOf == "" {
		return nil
	}
	s := &Subagent{Of: m.line.SubagentOf}
	if m.line.IsSubagent() && m.line.Session != nil {
		s.ID = m.line.Session.ID
		return s
	}
	// Its lines are among those of its main agent. Claude names it in them.
	var line struct {
		AgentID string `json:"agentId"`
	}
	_ = json.Unmarshal(m.line.Line, &line) // a line without a name
	s.ID = line.AgentID
	return s
}

// message has the members of a message that items are made from.
type message struct {
	Content      content         `json:"content"`
	ErrorMessage string          `json:"errorMessage"`
	DurationMs   float64         `json:"durationMs"` // of a tool's result, from pi 1.x on
	Details      json.RawMessage `json:"details"`    // of a tool's result, from pi
}

// block is one part of the content of a message.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	MimeType  string          `json:"mimeType"`
	Data      string          `json:"data"`
}

// content is the content of a message: a list of blocks, or a string in place of one text.
type content []block

// UnmarshalJSON reads content of either form. Blocks of another form are left out.
func (c *content) UnmarshalJSON(raw []byte) error {
	*c = nil
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*c = content{{Type: "text", Text: text}}
		return nil
	}
	var list []json.RawMessage
	_ = json.Unmarshal(raw, &list) // no content
	for _, raw := range list {
		var b block
		if json.Unmarshal(raw, &b) == nil || b.Type != "" {
			*c = append(*c, b)
		}
	}
	return nil
}

func (m *maker) message() message {
	var msg message
	_ = json.Unmarshal(m.line.Message, &msg) // what is missing or of another type is not shown
	return msg
}

// image returns the next image of the entry.
func (m *maker) image(b block) Image {
	m.images++
	return Image{Entry: m.entry.ID, N: m.images - 1, Type: b.MimeType, Bytes: len(b.Data) / 4 * 3}
}

// parts returns the texts of a message as one, and its images.
func (m *maker) parts(msg message) (text string, images []Image) {
	var texts []string
	for _, b := range msg.Content {
		switch b.Type {
		case "text":
			texts = append(texts, b.Text)
		case "image":
			images = append(images, m.image(b))
		}
	}
	return strings.Join(texts, "\n"), images
}

func (m *maker) chat() {
	i := Item{Kind: KindChat, Author: m.entry.AuthorID}
	if m.line.Text != nil {
		i.Text = *m.line.Text
	}
	var p struct {
		RunID string      `json:"runId"`
		Via   *thread.Via `json:"via"`
		Quiet bool        `json:"quiet"`
	}
	_ = json.Unmarshal(m.entry.Payload, &p) // not a prompt
	if i.Run = p.RunID; p.Via != nil {
		i.From = p.Via.ThreadID
	}
	i.ByAgent = p.Via != nil || p.Quiet
	if c, is := thread.ParseChat(m.entry, ""); is {
		i.Input = &Input{Delivery: Undelivered, Deliver: c.Deliver}
	}
	var whole string
	if whole, i.Images = m.parts(m.message()); len(whole) > len(i.Text) {
		i.Text = whole // beside a message the text is a beginning
	}
	m.add(i)
}

// delivery makes the item of a line or of a reply that has chats on record. A run's prompt is one that no reader waits
// for, and so is a reply, which wakes another bot.
func (m *maker) delivery() {
	var chats []string
	for _, id := range m.line.Named() {
		_, prompt := thread.RunOf(id)
		reply := strings.HasPrefix(id, "x_") && strings.Contains(id, ".")
		if !prompt && !reply && thread.ValidID(id) {
			chats = append(chats, id)
		}
	}
	if len(chats) > 0 {
		m.add(Item{Kind: KindDelivery, Chats: chats})
	}
}

func (m *maker) assistant() {
	msg := m.message()
	m.reply = !slices.ContainsFunc(msg.Content, func(b block) bool { return b.Type == "toolCall" })
	calls := 0
	for _, b := range msg.Content {
		switch b.Type {
		case "text":
			again := m.line.StopReason == "error" && strings.HasPrefix(msg.ErrorMessage, b.Text)
			if strings.TrimSpace(b.Text) != "" && !again {
				m.add(Item{Kind: KindText, Text: b.Text})
			}
		case "thinking":
			m.add(Item{Kind: KindThinking, Text: b.Thinking})
		case "toolCall":
			c := newCall(b)
			if b.Name == toolDelegate && m.line.Reaction != "" {
				c.Child = callKey(m.entry.ID, calls)
			}
			m.add(Item{Kind: KindCall, Call: c})
			calls++
		case "image":
			m.add(Item{Kind: KindImage, Images: []Image{m.image(b)}})
		}
	}
	switch reason := m.line.StopReason; reason {
	case "error", "aborted", "length", "refusal":
		m.add(Item{Kind: KindStop, Stop: &Stop{Reason: reason, Message: msg.ErrorMessage}})
	}
	if m.line.Reaction != "" {
		m.delivery()
	}
}

func newCall(b block) *Call {
	c := &Call{ID: b.ID, Name: b.Name, Arguments: bytes.Clone(b.Arguments), State: Running}
	c.Diff = askedDiff(b.Name, c.Arguments)
	c.Main, c.More = mainArgument(c.Arguments, c.Diff)
	return c
}

func (m *maker) result() {
	msg := m.message()
	r := &Result{
		CallID: m.line.ToolCallID, Name: m.line.ToolName, Entry: m.entry.ID, Time: m.entry.Time(),
		Failed: m.line.IsError != nil && *m.line.IsError, Cut: m.line.Truncated,
		Duration: milliseconds(msg.DurationMs),
	}
	r.Text, r.Images = m.parts(msg)
	if m.line.Reaction != "" {
		r.ExitCode = commandExit(r.Name, r.Text)
	}
	switch m.dialect.Harness {
	case session.Codex.Harness:
		dropHeader(r)
	case session.Claude.Harness:
		r.Diff = claudeDiff(m.line.Line)
	default:
		r.Diff = piDiff(msg.Details)
	}
	m.add(Item{Kind: KindResult, Result: r})
}

// milliseconds returns a duration of at most some years; 0 for any other.
func milliseconds(ms float64) time.Duration {
	if ms > 0 && ms < 1e12 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	return 0
}

// session makes the items of a line that is no turn.
func (m *maker) session() {
	switch m.line.Kind {
	case "compaction", "compacted", "compact_boundary":
		m.summary()
	case thread.KindStub:
		m.notice(Notice{
			Kind: NoticeStub, Bad: true,
			Text: "a line of " + Size(m.line.Bytes) + " was refused by the server: " + m.line.Reason,
		})
	case thread.KindUser:
		if m.line.SubagentOf == "" { // the agent itself wrote it
			m.summaryText()
			return
		}
		if m.dialect.Decode == nil || !json.Valid(m.line.Line) {
			return
		}
		if text := m.dialect.Decode(m.line.Line).Text; text != "" {
			m.add(Item{Kind: KindChat, Text: text})
		}
	}
}

// summary makes the rule for a line that replaces the conversation before it.
func (m *maker) summary() {
	var line struct {
		Summary      string  `json:"summary"` // pi
		TokensBefore float64 `json:"tokensBefore"`
		Payload      struct {
			Message string `json:"message"` // codex
		} `json:"payload"`
		Metadata struct {
			PreTokens float64 `json:"preTokens"` // claude
		} `json:"compactMetadata"`
	}
	_ = json.Unmarshal(m.line.Line, &line) // what is missing is not shown
	r := Rule{Kind: RuleSummary, Summary: line.Summary, Tokens: line.TokensBefore}
	if r.Summary == "" {
		r.Summary = line.Payload.Message
	}
	if r.Tokens == 0 {
		r.Tokens = line.Metadata.PreTokens
	}
	m.add(Item{Kind: KindRule, Rule: &r})
}

// summaryText makes the rule for the summary that claude writes behind its boundary, as a user's line.
func (m *maker) summaryText() {
	if !bytes.Contains(m.line.Line, []byte(`"isCompactSummary"`)) {
		return
	}
	var line struct {
		Summary bool    `json:"isCompactSummary"`
		Message message `json:"message"`
	}
	if json.Unmarshal(m.line.Line, &line) != nil || !line.Summary {
		return
	}
	var texts []string
	for _, b := range line.Message.Content {
		texts = append(texts, b.Text)
	}
	m.add(Item{Kind: KindRule, Rule: &Rule{Kind: RuleText, Summary: strings.Join(texts, "\n")}})
}

func (m *maker) notice(n Notice) { m.add(Item{Kind: KindNotice, Notice: &n, Author: m.entry.AuthorID}) }
