// Package screen writes a thread's items for people: on a terminal in colour, with a last line that shows how the run
// does, and elsewhere as plain lines. Package view decides what an item is. What has been written stays: of an item
// that changes only the new part is written.
package screen

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Bounds of what is shown without --full.
const (
	foldLines  = 8    // lines of a tool's output, and of a diff
	foldWidth  = 1000 // columns of one of them where there is no width
	leastWidth = 20
	ruleWidth  = 80 // of a rule, at most
	mostSeen   = 1000
)

// Options are how a Screen writes. The zero value is for a pipe.
type Options struct {
	Thread  string      // its id, for the commands in hints
	Full    bool        // nothing is folded
	Live    bool        // the last line changes in place: how the run does, each second
	Typed   bool        // a person types at the terminal: no live line, and no heartbeats either
	Color   bool        // styles are written
	RGB     bool        // and colours beyond a palette of 256
	Columns func() int  // the width at a time; nil, or 0 for no wrapping
	Away    func() bool // whether the server does not answer; nil for a server that does
	Server  string      // its address
	Ends    bool        // the program ends the run itself if it is dead: no hint how to

	Name func(id string) string // of an author; "" where it is not known. nil for ids alone

	// Of other threads, "" where it is not known: what one is called, and the state of one that has a task. They may
	// take a while. nil for ids alone.
	Title, Task func(ctx context.Context, id string) string

	Harnesses session.List // those whose lines may be on the thread; nil for session's list
}

// For returns the options for an output, from what it is and the environment.
func For(w io.Writer, getenv func(string) string) Options {
	width := func() int {
		columns, _ := cmdline.Terminal(w) // 0 where it is gone
		return columns
	}
	if _, terminal := cmdline.Terminal(w); !terminal {
		width = nil
	}
	return optionsFor(width, getenv)
}

// optionsFor is For. columns returns the width of a terminal; nil where the output is no terminal.
func optionsFor(columns func() int, getenv func(string) string) Options {
	if columns == nil {
		fixed, _ := strconv.Atoi(getenv("COLUMNS")) // 0 for no wrapping
		return Options{Columns: func() int { return fixed }}
	}
	plain := getenv("TERM") == "dumb"
	return Options{
		Live: !plain, Color: !plain && getenv("NO_COLOR") == "", Columns: columns,
		RGB: getenv("COLORTERM") == "truecolor" || getenv("COLORTERM") == "24bit",
	}
}

// Screen writes a thread's items for people.
type Screen struct {
	Options
	w io.Writer

	mu      sync.Mutex // guards all below
	builder view.Builder
	watch   view.Watch
	err     error // of the writer

	width   int             // of what is written now; 0 for no wrapping
	who     string          // author of the turn that was shown last
	date    string          // of the last time that was shown
	run     string          // whose items were shown last
	any     bool            // something was shown
	last    string          // ID of the item that was shown last
	seen    map[string]bool // subagents that were named
	verdict *view.Item      // the first half of one, until the second one comes
	coming  coming          // text of a bot
	tasks   []string        // how the open tasks do, for the live line

	pulse
}

// New returns a Screen that writes to w. Start it for an output that is watched.
func New(w io.Writer, o Options) *Screen {
	return &Screen{
		w: w, Options: o, builder: view.Builder{Harnesses: o.Harnesses}, date: day(time.Now()), seen: map[string]bool{},
	}
}

// Ran reports to the screen that the thread has had a run before its first entry.
func (s *Screen) Ran() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.builder.Runs = true
}

// Entry shows what the thread's next entry changes.
func (s *Screen) Entry(e thread.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measure()
	s.watch.Add(e)
	s.received(e)
	sig, _ := thread.Scan(e.Payload) // no signal
	for _, c := range s.builder.Add(e) {
		if sig.Reaction && c.Replaces && c.Item.Kind == view.KindChat {
			continue // a chat is delivered by its answer
		}
		s.change(c)
	}
	s.comes(e.Time())
	s.waits(e)
	if now := time.Now(); now.Sub(s.drawn) >= mostDraws { // not for each of many entries
		s.breathe(now)
	}
	return s.err
}

// measure reads the width of the terminal, which may have changed.
func (s *Screen) measure() {
	if s.width = 0; s.Columns == nil {
		return
	}
	if s.width = s.Columns(); s.width > 0 {
		s.width = max(s.width, leastWidth)
	}
}

// room returns the columns that are left beside an indent; 0 for no limit.
func (s *Screen) room(indent int) int {
	if s.width == 0 {
		return 0
	}
	return max(1, s.width-indent)
}

// change shows a change. What has been written stays: of an item that is replaced only the new part is written.
func (s *Screen) change(c view.Change) {
	i := c.Item
	if s.second(c) {
		return
	}
	if i.Subagent != nil && !s.Full {
		s.named(i)
		return
	}
	if i.Kind == view.KindChat && c.Replaces {
		s.delivered(i)
		return
	}
	if i.Reaction != nil {
		s.answers(c)
		return
	}
	switch i.Kind {
	case view.KindDelivery:
		return // of a chat that is not shown
	case view.KindChat, view.KindText, view.KindThinking, view.KindImage, view.KindStop:
		s.turn(i)
	case view.KindCall:
		if !c.Replaces {
			s.speaker(i)
			s.call(*i.Call)
		}
		s.answered(i, c.Replaces && s.last != i.ID)
	case view.KindResult:
		s.who = ""
		s.result(*i.Result, i.Diff(), i.Result.Name, i.Result.Name)
	case view.KindRule:
		s.rule(i)
	case view.KindNotice:
		s.notice(i)
	case view.KindVerdict:
		if i.Verdict.Replaced {
			return
		}
		s.verdict = &i
		if failed := i.Verdict.Class != "" || i.Verdict.Reason != ""; !failed || i.Verdict.HasTotals {
			s.flush()
		}
	}
	s.last = i.ID
}

// second shows a verdict whose second half a change is. For any other change it shows the verdict that waits, and
// reports false.
func (s *Screen) second(c view.Change) bool {
	if s.verdict == nil || !c.Replaces || c.Item.ID != s.verdict.ID {
		s.flush()
		return false
	}
	s.verdict = nil
	s.ended(*c.Item.Verdict)
	return true
}

// flush shows a verdict whose second half has not come.
func (s *Screen) flush() {
	if v := s.verdict; v != nil {
		s.verdict = nil
		s.ended(*v.Verdict)
	}
}

// named shows that a subagent works: its task, once.
func (s *Screen) named(i view.Item) {
	if s.seen[i.Subagent.ID] {
		return
	}
	if len(s.seen) >= mostSeen {
		clear(s.seen)
	}
	s.seen[i.Subagent.ID] = true
	line := "  subagent " + i.Subagent.ID
	if i.Kind == view.KindChat {
		line += ": " + firstLine(i.Text)
	}
	s.printf("%s\n", s.paint(dim, clip(view.Visible(line), s.room(0))))
	s.last = i.ID
}

// delivered shows that an agent has a chat, unless the chat stands right above.
func (s *Screen) delivered(i view.Item) {
	if i.Input.Delivery != view.Delivered || s.last == i.ID {
		return // a notice has the refusal
	}
	line := "→ delivered: " + firstLine(i.Text)
	s.who = ""
	s.printf("%s\n", s.paint(dim, clip(view.Visible(line), s.room(0))))
	s.last = i.Entry + "/delivered"
}

// undelivered shows how many chats no agent has, if there are any.
func (s *Screen) undelivered(next string) {
	if n := s.builder.Undelivered(); n > 0 {
		s.lines(yellow, "", view.Count(int64(n), "chat")+" not delivered"+next)
	}
}

// turn shows a part of a turn.
func (s *Screen) turn(i view.Item) {
	if i.Kind == view.KindChat {
		s.ruled(i.Run)
		who := i.Author
		if i.Subagent != nil {
			who = "task of subagent " + i.Subagent.ID
		} else if who == "" {
			who = "chat"
		} else if i.IsBot() {
			who = s.bot(who)
		} else {
			who = cmp.Or(s.name(who), who)
		}
		s.heading(bold, who, i.Time)
		if i.From != "" {
			s.lines(dim, "", "posted from "+s.titled(i.From))
		}
		s.lines("", "", i.Text)
		for _, m := range i.Images {
			s.lines(dim, "", imageText(m))
		}
		return
	}
	s.speaker(i)
	switch i.Kind {
	case view.KindText:
		s.lines("", "", i.Text)
	case view.KindThinking:
		s.lines(dim, "  ", strings.TrimSpace(i.Text))
	case view.KindImage:
		s.lines(dim, "", imageText(i.Images[0]))
	case view.KindStop:
		style := yellow
		if i.Stop.Reason == "error" {
			style = red
		}
		s.lines(style, "", i.Sentence())
		if i.Stop.Reason != "length" {
			s.who = "" // the next lines are a retry
		}
	}
}

// speaker writes who speaks, unless it is as before: some agents write a line for each part of a reply.
func (s *Screen) speaker(i view.Item) {
	who := i.Model
	if i.Reaction != nil {
		who = s.bot(i.Author)
	}
	if who == "" {
		who = "assistant"
		if i.Kind == view.KindCall && i.Harness == "" { // a person runs a command in the box
			who = cmp.Or(s.name(i.Author), i.Author, "command")
		}
	}
	if i.Subagent != nil {
		who += " (subagent " + i.Subagent.ID + ")"
	}
	s.speaks(who, i.Time)
}

// speaks writes a heading, unless the same one speaks on.
func (s *Screen) speaks(who string, at time.Time) {
	if s.who != who {
		s.heading(cyan, who, at)
	}
	s.who = who
}

func (s *Screen) heading(style, who string, at time.Time) {
	s.who = ""
	clock := ""
	if !at.IsZero() {
		clock = at.Local().Format("15:04:05")
		if d := day(at); d != s.date {
			s.date, clock = d, d+" "+clock
		}
	}
	s.printf("\n%s %s\n", s.paint(style, view.Visible(who)), s.paint(dim, clock))
}

// day returns the date of a time where the user is.
func day(at time.Time) string { return at.Local().Format(time.DateOnly) }

// ruled draws a line where another run begins.
func (s *Screen) ruled(run string) {
	if run == "" || run == s.run {
		return
	}
	s.run = run
	if s.any {
		width := min(ruleWidth, s.width)
		if width == 0 {
			width = ruleWidth
		}
		s.printf("\n%s\n", s.paint(dim, strings.Repeat("─", width)))
	}
}

func (s *Screen) rule(i view.Item) {
	switch i.Rule.Kind {
	case view.RuleText:
		if !s.Full {
			return
		}
	case view.RuleSummary, view.RuleBox:
	default:
		s.ruled(i.Run)
	}
	s.lines(dim, "", i.Sentence())
	if s.Full && i.Rule.Summary != "" {
		s.lines(dim, "  ", i.Rule.Summary)
	}
}

func (s *Screen) notice(i view.Item) {
	n, style := *i.Notice, dim
	switch {
	case n.Bad:
		style = red
	case n.Kind == view.NoticeSetup:
		return // the live line has it
	case n.Kind == view.NoticeCancel || n.Kind == view.NoticeEnd:
		style = yellow
	}
	if n.Bot != "" {
		n.Text = s.botName(n.Bot) + " " + n.Text
	}
	s.lines(style, "", n.Text)
}

// ended shows the verdict of a run.
func (s *Screen) ended(v view.Verdict) {
	mark, style := cmdline.Mark(v.Status)
	head, figures := v.Head(), v.Figures()
	if !strings.Contains(head, ": ") { // the status alone
		head, figures = strings.Join(append([]string{head}, figures...), " · "), nil
	}
	s.printf("\n")
	s.lines(style, "", mark+" "+head)
	if figures != nil {
		s.lines(dim, "  ", strings.Join(figures, " · "))
	}
	if next := v.Next(); next != "" {
		s.lines("", "  ", "next: "+next)
	}
	s.undelivered(": the next run with --resume gets them")
	if v.Stderr == "" {
		return
	}
	lines := strings.Split(v.Stderr, "\n")
	if !s.Full && len(lines) > foldLines {
		lines = lines[len(lines)-foldLines:]
	}
	for r := range s.output(dim, strings.Join(lines, "\n")) {
		s.row("  stderr: ", r, true)
	}
}

// printf writes, in place of the live line if that is there.
func (s *Screen) printf(format string, args ...any) {
	if s.err != nil {
		return
	}
	s.clear()
	s.any = true
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format, args...)
	}
}

// firstLine returns the first line of a text that has more than white space.
func firstLine(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return first
}
