package dispatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/thread"
)

// builder makes a conversation of a thread's entries.
type builder struct {
	Room
	journal  *Journal
	blocks   []block
	asked    []model.Message // the triggers
	replies  []model.Message // the reaction's own rounds and results
	human    bool            // a human's chat was there
	runs     map[string]*ranRun
	running  *ranRun
	commands map[string]*command
}

// ranRun is a run of the thread.
type ranRun struct {
	harness, author string
	began           time.Time
	calls           int
	last            string
}

// command is a command of the thread.
type command struct {
	author, text string
	output       string
}

func (b *builder) add(e thread.Entry) {
	f, err := thread.Scan(e.Payload)
	if err != nil {
		return
	}
	switch f.Type {
	case thread.TypeChat:
		add(e, b.chat)
	case thread.TypeChildFinished:
		add(e, b.child)
	case thread.TypeExecStarted:
		add(e, func(e thread.Entry, p thread.ExecStarted) {
			b.commands[p.ExecID] = &command{author: e.AuthorID, text: p.Command}
		})
	case thread.TypeExecOutput:
		add(e, func(_ thread.Entry, p thread.ExecOutput) {
			if c := b.commands[p.ExecID]; c != nil {
				c.output += p.Text
				c.output = c.output[max(0, len(c.output)-mostOutput):]
			}
		})
	case thread.TypeExecFinished:
		add(e, b.executed)
	case thread.TypeStatus:
		add(e, b.status)
	default:
		b.line(e, f.Type)
	}
}

func (b *builder) push(e thread.Entry, m ...model.Message) *block {
	b.blocks = append(b.blocks, block{messages: m, entries: 1, at: e.Received()})
	return &b.blocks[len(b.blocks)-1]
}

func (b *builder) chat(e thread.Entry, p struct {
	Text    string
	RunID   string
	Session json.RawMessage
	Quiet   bool
},
) {
	if p.RunID != "" || p.Session != nil || p.Quiet {
		return
	}
	name, kind := b.name(e.AuthorID)
	human := kind == "human"
	m := words("[chat from %s (%s) %s id %s]\n%s", name, kind, e.Received().UTC().Format("15:04"), e.ID,
		cut(p.Text, mostChat))
	if slices.Contains(b.journal.Chats, e.ID) {
		b.ask(m)
		b.human = b.human || human
		return
	}
	b.push(e, m).keep = human && !b.human
	b.human = b.human || human
}

// ask adds a trigger.
func (b *builder) ask(m model.Message) {
	m.Parts[0].Text = "[answer this]\n" + m.Parts[0].Text
	b.asked = append(b.asked, m)
}

func (b *builder) child(e thread.Entry, p thread.ChildFinished) {
	b.push(e, words("[task on thread %s %s]\n%s", p.ChildThreadID, p.Status, cut(p.Text, mostChild)))
}

func (b *builder) executed(e thread.Entry, p thread.ExecFinished) {
	c := b.commands[p.ExecID]
	if c == nil || strings.HasPrefix(p.ExecID, "x_") { // a bot's own command is a result of its reaction
		return
	}
	end := "ended by a signal"
	switch {
	case p.Error != "":
		end = p.Error
	case p.ExitCode != nil:
		end = fmt.Sprint("exit ", *p.ExitCode)
	}
	name, _ := b.name(c.author)
	b.push(e, words("[command by %s: $ %s → %s, %s; end of its output:]\n%s", name, cut(c.text, mostReply), end,
		time.Duration(p.DurationMs)*time.Millisecond, strings.ToValidUTF8(c.output, "")))
	delete(b.commands, p.ExecID)
}

func (b *builder) status(e thread.Entry, p thread.StatusChanged) {
	if p.Status == thread.StatusRunning {
		b.running = &ranRun{harness: p.Harness, author: e.AuthorID, began: e.Received()}
		b.runs[p.RunID] = b.running
		return
	}
	r := b.runs[p.RunID]
	if r == nil {
		return
	}
	name, _ := b.name(r.author)
	b.push(e, words("[run of %s by %s: %s, %s, %d calls; it ended with:]\n%s", r.harness, name, p.Status,
		e.Received().Sub(r.began).Round(time.Second), r.calls, cut(r.last, mostReply)))
	delete(b.runs, p.RunID)
	if b.running == r {
		b.running = nil
	}
}

// line adds a round or a result of a bot, or counts a line of a run.
func (b *builder) line(e thread.Entry, typ string) {
	var p struct {
		Reaction   thread.InReaction
		Message    json.RawMessage
		Session    json.RawMessage
		ToolCallID string
		IsError    bool
	}
	if json.Unmarshal(e.Payload, &p) != nil {
		return
	}
	switch {
	case p.Session != nil && b.running != nil:
		switch {
		case strings.HasSuffix(typ, "."+thread.KindToolResult):
			b.running.calls++
		case strings.HasSuffix(typ, "."+thread.KindAssistant):
			if text := textOf(p.Message); text != "" {
				b.running.last = text
			}
		}
	case p.Reaction.ID == "":
	case typ == thread.TypeRound && e.AuthorID != b.journal.Bot:
		b.other(e, p.Message)
	case typ == thread.TypeRound:
		b.own(e, p.Reaction.ID, model.Message{Role: model.Assistant, Parts: partsOf(p.Message)})
	case typ == thread.TypeResult && e.AuthorID == b.journal.Bot:
		b.own(e, p.Reaction.ID, model.Message{Role: model.User, Parts: []model.Part{{Result: &model.Result{
			CallID: p.ToolCallID, Text: cut(textOf(p.Message), mostChat), IsError: p.IsError,
		}}}})
	}
}

// other adds the final reply of another bot. Its other rounds are its own affair.
func (b *builder) other(e thread.Entry, message json.RawMessage) {
	if len(callsOf(message)) > 0 {
		return
	}
	name, _ := b.name(e.AuthorID)
	m := words("[reply from %s (bot) %s id %s]\n%s", name, e.Received().UTC().Format("15:04"), e.ID,
		cut(textOf(message), mostChat))
	if slices.Contains(b.journal.Chats, e.ID) {
		b.ask(m)
		return
	}
	b.push(e, m)
}

// own adds a message of one of the bot's reactions.
func (b *builder) own(e thread.Entry, reaction string, m model.Message) {
	if reaction == b.journal.ID {
		b.replies = append(b.replies, m)
		return
	}
	i := slices.IndexFunc(b.blocks, func(x block) bool { return x.own == reaction })
	if i < 0 {
		b.push(e, m).own = reaction
		return
	}
	x := &b.blocks[i]
	x.messages, x.entries = append(x.messages, m), x.entries+1
}
