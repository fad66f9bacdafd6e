package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"

	"arbe.0sk.ar/runner/thread"
)

// Defaults of a view.
const (
	foldLines    = 8  // lines of a tool's result that are shown without --full
	defaultWidth = 80 // columns of a terminal whose width is unknown
	leastWidth   = 20
)

type viewOptions struct {
	live  bool // the heartbeat is one line that changes in place
	color bool
	full  bool // nothing is folded
	width int  // columns; 0 for the default
}

// view writes a thread's entries for people: turns, tool calls and their results, the run's beginning and its end.
type view struct {
	w io.Writer
	viewOptions
	fold   thread.Fold
	who    string        // author of the turn that was shown last
	beat   bool          // the last line on the screen is the heartbeat
	silent time.Duration // of the last heartbeat that was written as a line of its own
	err    error
}

func newView(w io.Writer, o viewOptions) *view {
	if o.width == 0 {
		o.width = defaultWidth
	}
	o.width = max(o.width, leastWidth)
	return &view{w: w, viewOptions: o}
}

// Colours, as arguments of the terminal's SGR sequence.
const (
	dim    = "2"
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (v *view) paint(style, text string) string {
	if !v.color || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

func (v *view) printf(format string, args ...any) {
	if v.err != nil {
		return
	}
	if v.beat {
		_, v.err = io.WriteString(v.w, "\r\x1b[K")
		v.beat = false
	}
	if v.err == nil {
		_, v.err = fmt.Fprintf(v.w, format, args...)
	}
}

// lines writes a text, wrapped, each line with the indent and in the style.
func (v *view) lines(style, indent, text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		for _, part := range wrap(clean(strings.TrimRight(line, "\n")), v.width-len(indent)) {
			v.printf("%s\n", v.paint(style, indent+part))
		}
	}
}

// entry shows the thread's next entry.
func (v *view) entry(e thread.Entry) error {
	v.fold.Add(e)
	var p struct {
		thread.Line
		RunID   string `json:"runId"`
		Harness string `json:"harness"`
		Status  string `json:"status"`
	}
	if json.Unmarshal(e.Payload, &p) != nil {
		return nil // not an entry that can be shown
	}
	if p.Type != thread.TypeHeartbeat {
		v.silent = 0
	}
	_, kind, _ := strings.Cut(p.Type, ".")
	if p.SubagentOf != "" && !v.full {
		return v.err // its result is in the session that called it
	}
	switch {
	case p.Type == thread.TypeChat:
		who := e.AuthorID
		if who == "" {
			who = "chat"
		}
		text := ""
		if p.Text != nil {
			text = *p.Text
		}
		v.heading(bold, who, e)
		v.lines("", "", text)
	case p.Type == thread.TypeStarted:
		v.started(e)
	case p.Type == thread.TypeHeartbeat:
		v.heartbeat(e)
	case p.Type == thread.TypeCancel:
		v.printf("%s\n", v.paint(yellow, "cancel requested"))
	case p.Type == thread.TypeStatus && p.Status != thread.StatusRunning:
		v.ended(p.RunID)
	case strings.HasPrefix(p.Type, "signal."):
	case kind == thread.KindAssistant:
		v.assistant(e, p.Line)
	case kind == thread.KindToolResult:
		v.result(p.Line)
	case kind == thread.KindSession && summaries[p.Kind]:
		v.printf("%s\n", v.paint(dim, "the conversation was summarised"))
	case kind == thread.KindSession && p.Kind == "stub":
		v.printf(
			"%s\n",
			v.paint(dim, fmt.Sprintf("a line of %s was refused by the server: %s", size(p.Bytes), clean(p.Reason))),
		)
	}
	return v.err
}

// summaries are the kinds of the lines that record a shortened conversation, of all harnesses.
var summaries = map[string]bool{"compaction": true, "compacted": true, "compact_boundary": true}

func (v *view) heading(style, who string, e thread.Entry) {
	v.who = ""
	at := ""
	if t := e.Time(); !t.IsZero() {
		at = t.Local().Format("15:04:05")
	}
	v.printf("\n%s %s\n", v.paint(style, clean(who)), v.paint(dim, at))
}

func (v *view) started(e thread.Entry) {
	var p thread.Started
	if json.Unmarshal(e.Payload, &p) != nil {
		return
	}
	agent := p.Harness
	if p.AgentVersion != "" {
		agent += " " + p.AgentVersion
	}
	where := p.Cwd
	if p.Sandbox != nil {
		where += " on " + p.Sandbox.Provider + ":" + p.Sandbox.Ref
	}
	v.lines(dim, "", fmt.Sprintf("%s starts in %s (run %s)", agent, where, p.RunID))
}

// block is one part of the content of a message.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	MimeType  string          `json:"mimeType"`
}

// message is the part of a message that all harnesses share.
type message struct {
	Content      json.RawMessage `json:"content"`
	ErrorMessage string          `json:"errorMessage"`
}

func blocks(raw json.RawMessage) []block {
	var list []block
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	var text string
	_ = json.Unmarshal(raw, &text) // a string, or content that can't be shown
	return []block{{Type: "text", Text: text}}
}

func (v *view) assistant(e thread.Entry, p thread.Line) {
	var m message
	_ = json.Unmarshal(p.Message, &m) // what is missing is not shown
	who := "assistant"
	if p.Model != "" {
		who = p.Model
	}
	if p.SubagentOf != "" && p.Session != nil {
		who += " (subagent " + p.Session.ID + ")"
	}
	if v.who != who { // some agents write a line for each part of a reply
		v.heading(cyan, who, e)
	}
	v.who = who
	for _, b := range blocks(m.Content) {
		switch b.Type {
		case "text":
			v.lines("", "", b.Text)
		case "thinking":
			v.lines(dim, "  ", strings.TrimSpace(b.Thinking))
		case "toolCall":
			v.call(clean(b.Name), b.Arguments)
		case "image":
			v.printf("%s\n", v.paint(dim, "["+clean(b.MimeType)+" image]"))
		}
	}
	switch p.StopReason {
	case "error":
		v.lines(red, "", "error: "+m.ErrorMessage)
		v.who = "" // the next lines are a retry
	case "aborted":
		v.printf("%s\n", v.paint(yellow, "aborted"))
		v.who = ""
	case "length":
		v.printf("%s\n", v.paint(yellow, "cut at the output limit"))
	}
}

// call shows a tool call: the tool and its main argument, or all arguments as JSON.
func (v *view) call(name string, raw json.RawMessage) {
	var args map[string]any
	text := string(raw)
	if json.Unmarshal(raw, &args) == nil {
		for _, main := range []string{"command", "cmd", "path", "file_path"} {
			if s, ok := args[main].(string); ok && (len(args) == 1 || main != "command" && main != "cmd" || !v.full) {
				text = s
				break
			}
		}
	}
	head := "› " + name
	if v.full {
		v.printf("%s\n", v.paint(yellow, head))
		v.lines("", "  ", text)
		return
	}
	first, rest, more := strings.Cut(text, "\n")
	first = clean(first)
	room := v.width - runewidth.StringWidth(head) - 1
	if more && rest != "" {
		first = clip(first, room-2) + " …"
	}
	v.printf("%s %s\n", v.paint(yellow, head), clip(first, room))
}

func (v *view) result(p thread.Line) {
	v.who = ""
	var m message
	_ = json.Unmarshal(p.Message, &m) // what is missing is not shown
	style := dim
	if p.IsError != nil && *p.IsError {
		style = red
	}
	var lines []string
	for _, b := range blocks(m.Content) {
		if b.Type == "image" {
			lines = append(lines, "["+b.MimeType+" image]")
			continue
		}
		for line := range strings.Lines(strings.TrimRight(b.Text, "\n")) {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	more := 0
	if !v.full && len(lines) > foldLines {
		// The result is mostly in the last lines, so both ends are shown.
		more = len(lines) - foldLines
		lines = append(lines[:foldLines/2:foldLines/2], lines[len(lines)-foldLines/2:]...)
	}
	for i, line := range lines {
		if more > 0 && i == foldLines/2 {
			v.printf("%s\n", v.paint(dim, "  … "+count(int64(more), "more line")+" (--full shows them)"))
		}
		if v.full {
			v.lines(style, "  ", line)
		} else {
			v.printf("%s\n", v.paint(style, "  "+clip(clean(line), v.width-2)))
		}
	}
	if len(lines) == 0 {
		v.printf("%s\n", v.paint(style, "  (no output)"))
	}
}

// heartbeat shows a heartbeat: on a terminal as one line that changes in place, elsewhere as lines of their own, fewer
// of them the longer the agent is quiet.
func (v *view) heartbeat(e thread.Entry) {
	var p thread.Heartbeat
	if json.Unmarshal(e.Payload, &p) != nil {
		return
	}
	up := time.Duration(p.UptimeMs) * time.Millisecond
	line := fmt.Sprintf("… %s", up.Round(time.Second))
	if p.Agent != nil {
		quiet := time.Duration(p.Agent.QuietMs) * time.Millisecond
		line += fmt.Sprintf(" · quiet for %s · cpu %s · %s", quiet.Round(time.Second),
			(time.Duration(p.Agent.CPUMs) * time.Millisecond).Round(100*time.Millisecond), size(p.Agent.RSSBytes))
	}
	if p.Pending > 0 {
		line += " · " + count(p.Pending, "line") + " not posted yet"
	}
	line = clip(line, v.width-1)
	if v.live {
		v.printf("%s", v.paint(dim, line))
		v.beat = true
		return
	}
	if v.silent == 0 || up >= 2*v.silent {
		v.silent = max(up, time.Second)
		v.printf("%s\n", line)
	}
}

// ended shows the verdict of a run.
func (v *view) ended(runID string) {
	run, _ := v.fold.Run(runID)
	style, mark := map[string]string{thread.StatusCompleted: green, thread.StatusCancelled: yellow}[run.Status], "✔"
	if style == "" {
		style = red
	}
	if run.Status != thread.StatusCompleted {
		mark = "✘"
	}
	head := []string{run.Status}
	if run.Orphaned != nil {
		head = []string{"orphaned", run.Orphaned.Reason}
	}
	if c := run.Cause; c != nil {
		head = append(head, c.ErrorClass, c.Message)
	}
	var figures []string
	if t := run.Totals; t != nil {
		if run.Cause == nil && t.Reason != "" {
			head = append(head, t.Reason)
		}
		if t.ExitSignal != nil {
			figures = append(figures, *t.ExitSignal)
		} else if t.ExitCode != nil {
			figures = append(figures, "exit "+strconv.Itoa(*t.ExitCode))
		}
		figures = append(
			figures,
			(time.Duration(t.DurationMs) * time.Millisecond).Round(100*time.Millisecond).String(),
			count(t.Lines, "line"),
		)
		figures = append(figures, cost(t.Usage)...)
	}
	v.printf("\n")
	if len(head) == 1 {
		head, figures = append(head, figures...), nil
	}
	v.lines(style, "", mark+" "+strings.Join(head, " · "))
	if figures != nil {
		v.lines(dim, "  ", strings.Join(figures, " · "))
	}
	if c := run.Cause; c != nil && c.StderrTail != "" &&
		!strings.Contains(c.Message, strings.TrimSpace(c.StderrTail)) {
		lines := strings.Split(strings.TrimSpace(c.StderrTail), "\n")
		if !v.full && len(lines) > foldLines {
			lines = lines[len(lines)-foldLines:]
		}
		for _, line := range lines {
			v.lines(dim, "  stderr: ", line)
		}
	}
}

// cost returns the tokens and the money of a run's usage.
func cost(usage json.RawMessage) []string {
	var u struct {
		Total float64 `json:"totalTokens"`
		Cost  struct {
			Total float64 `json:"total"`
		} `json:"cost"`
	}
	if json.Unmarshal(usage, &u) != nil || u.Total == 0 {
		return nil
	}
	parts := []string{fmt.Sprintf("%.0f tokens", u.Total)}
	if u.Cost.Total > 0 {
		parts = append(parts, fmt.Sprintf("$%.4f", u.Cost.Total))
	}
	return parts
}

// clean returns text without what a terminal obeys.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return r
		case r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError:
			return '·'
		}
		return r
	}, s)
}

// count returns "n things", or "1 thing".
func count(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// size returns a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%d KiB", (n+1023)/1024)
	}
}
