package screen

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"arbe.0sk.ar/runner/host/view"
)

// coming is the text of a bot's reply that a live screen writes as it comes. Its whole lines are written; the last
// one, which still grows, stands where the live line does. Of several bots that answer at a time one is shown so.
type coming struct {
	reaction string // its id; "" for none
	text     string // of the present round, as far as it is shown
	rest     string // the last line of that, which is not written yet
}

// comes shows what is new of the replies that come, at a time.
func (s *Screen) comes(at time.Time) {
	if !s.Live {
		return
	}
	var now *view.Answering
	for _, a := range s.builder.Answering() {
		if a.Text != "" && (now == nil || a.ID == s.coming.reaction) {
			now = &a
		}
	}
	if now == nil || now.ID != s.coming.reaction || !strings.HasPrefix(now.Text, s.coming.text) {
		if now == nil {
			s.cutOff()
			return
		}
		s.anew(now.ID)
		s.coming.reaction = now.ID
	}
	s.grow(now.Bot, at, now.Text[len(s.coming.text):])
}

// grow shows the next part of the text that comes: its whole lines are written.
func (s *Screen) grow(bot string, at time.Time, more string) {
	if more == "" {
		return
	}
	s.speaks(s.bot(bot), at)
	s.coming.text += more
	lines := strings.Split(s.coming.rest+more, "\n")
	last := len(lines) - 1
	for _, line := range lines[:last] {
		s.row("", row{{"", view.Visible(line)}}, true)
	}
	rest := untab(view.Visible(lines[last]))
	parts := breaks(rest, s.room(1))
	for _, part := range parts[:len(parts)-1] {
		s.put("", row{{"", rest[part.from:part.to]}})
	}
	s.coming.rest = rest[parts[len(parts)-1].from:]
}

// anew ends a text that does not come any more, with a mark where another one of the same reaction follows.
func (s *Screen) anew(reaction string) {
	begun := s.coming.reaction == reaction && s.coming.text != ""
	if s.cutOff(); begun {
		s.lines(dim, "", "(the reply begins anew)")
	}
}

// cutOff writes the rest of a text that does not come any more.
func (s *Screen) cutOff() {
	if s.coming.rest != "" {
		s.lines("", "", s.coming.rest)
	}
	s.coming = coming{}
}

// completes shows the rest of a text of a bot's round, and reports whether its beginning was shown as it came.
func (s *Screen) completes(i view.Item) bool {
	if i.Reaction.ID != s.coming.reaction || s.coming.text == "" {
		return false
	}
	if rest, ok := strings.CutPrefix(s.coming.text, i.Text); ok { // the round has another text behind it
		s.coming.text = rest
	} else if rest, ok := strings.CutPrefix(i.Text, s.coming.text); ok {
		s.grow(i.Author, i.Time, rest)
		s.coming.text = ""
	} else {
		s.anew(i.Reaction.ID)
		return false
	}
	if s.coming.text == "" {
		s.cutOff()
	}
	return true
}

// answers shows an item of a bot's reaction.
func (s *Screen) answers(c view.Change) {
	i := c.Item
	switch i.Kind {
	case view.KindText, view.KindStop:
		if c.Replaces { // it has its figures
			s.lines(dim, "", i.Reaction.Figures())
			s.who = ""
			return
		}
		if i.Kind == view.KindText && s.completes(i) {
			break
		}
		s.turn(i)
	case view.KindThinking, view.KindImage:
		if s.Full {
			s.turn(i)
		}
	case view.KindCall:
		s.cutOff()
		switch {
		case s.Full:
			if !c.Replaces {
				s.speaker(i)
				s.call(*i.Call)
			}
			s.answered(i, c.Replaces && s.last != i.ID)
		case i.Call.State != view.Running:
			s.speaker(i)
			s.called(*i.Call)
		}
	case view.KindResult:
		s.result(*i.Result, nil, i.Result.Name, i.Result.Name)
	case view.KindNotice:
		s.cutOff()
		s.notice(i)
		s.who = ""
	default: // an end
		return
	}
	s.last = i.ID
}

// called writes a bot's call as one line.
func (s *Screen) called(c view.Call) {
	var end row
	switch {
	case c.Result != nil && c.Result.ExitCode != nil && *c.Result.ExitCode != 0:
		end = append(end, piece{red, " · exit " + strconv.Itoa(*c.Result.ExitCode)})
	case c.State == view.Failed:
		end = append(end, piece{red, " · failed"})
	case c.State == view.Unanswered:
		end = append(end, piece{dim, " · no result"})
	}
	if task := c.Task(); task != "" && s.Task != nil {
		if state := s.Task(context.Background(), task); state != "" {
			end = append(end, piece{dim, " · task: " + state})
		}
	}
	if c.Result != nil && c.Result.Duration >= leastTook {
		end = append(end, piece{dim, " · " + brief(c.Result.Duration)})
	}
	head, text := "› "+view.Visible(c.Name), view.Visible(firstLine(c.Main))
	if s.width > 0 {
		room := s.width - runewidth.StringWidth(head) - 1
		for _, p := range end {
			room -= runewidth.StringWidth(p.text)
		}
		text = clip(text, max(1, room))
	}
	s.row("", append(row{{yellow, head}, {"", " " + text}}, end...), false)
}

// bot returns what a heading calls a bot.
func (s *Screen) bot(id string) string {
	if name := s.name(id); name != "" {
		return name + " (bot)"
	}
	return s.botName(id)
}

// botName returns what a sentence calls a bot.
func (s *Screen) botName(id string) string { return view.BotName(id, s.name(id)) }

// name returns the name of an author; "" where it is not known.
func (s *Screen) name(id string) string {
	if s.Name == nil {
		return ""
	}
	return s.Name(id)
}

// Replying reports whether a bot answers.
func (s *Screen) Replying() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.builder.Answering()) > 0
}

// besides returns which bots answer, and how open tasks do, behind a mark; "" for none.
func (s *Screen) besides(mark string) string {
	var parts []string
	for _, a := range s.builder.Answering() {
		part := s.botName(a.Bot) + " answers"
		if n := len(a.Tools); n > 0 {
			part += ": " + a.Tools[n-1]
		} else if len(a.Calls) > 0 {
			part += ": " + labelOf(*a.Calls[0].Call)
		}
		parts = append(parts, part)
	}
	if parts = append(parts, s.tasks...); parts == nil {
		return ""
	}
	return mark + view.Visible(strings.Join(parts, " · "))
}
