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

// builder makes a conversation of a thread's notes.
type builder struct {
	Room
	journal *Journal
	blocks  []block
	asked   []model.Message // the triggers
	replies []model.Message // the reaction's own rounds and results
	human   bool            // a human's chat was there
}

func (b *builder) add(x note) {
	switch {
	case x.typ == thread.TypeChat:
		add(x.Entry, b.chat)
	case x.typ == thread.TypeChildFinished:
		add(x.Entry, b.child)
	case x.command != nil:
		add(x.Entry, func(e thread.Entry, p thread.ExecFinished) { b.executed(e, p, x.command) })
	case x.run != nil:
		add(x.Entry, func(e thread.Entry, p thread.StatusChanged) { b.status(e, p, x.run) })
	default:
		b.line(x)
	}
}

func (b *builder) push(e thread.Entry, m ...model.Message) *block {
	b.blocks = append(b.blocks, block{messages: m, entries: 1, at: e.Received()})
	return &b.blocks[len(b.blocks)-1]
}

func (b *builder) chat(e thread.Entry, p thread.Chat) {
	name, kind := b.name(e.AuthorID)
	human := kind == "human"
	m := words("[chat from %s (%s) %s id %s]\n%s", name, kind, e.Received().UTC().Format("15:04"), e.ID,
		foreign(cut(p.Text, mostChat)))
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
	b.push(e, words("[task on thread %s %s]\n%s", label(p.ChildThreadID), label(p.Status),
		foreign(cut(p.Text, mostChild))))
}

func (b *builder) executed(e thread.Entry, p thread.ExecFinished, c *command) {
	end := "ended by a signal"
	switch {
	case p.Error != "":
		end = p.Error
	case p.ExitCode != nil:
		end = fmt.Sprint("exit ", *p.ExitCode)
	}
	name, _ := b.name(c.author)
	b.push(e, words("[command by %s: $ %s → %s, %s; end of its output:]\n%s", name, foreign(c.text),
		foreign(end), time.Duration(p.DurationMs)*time.Millisecond, foreign(strings.ToValidUTF8(c.output, ""))))
}

func (b *builder) status(e thread.Entry, p thread.StatusChanged, r *ranRun) {
	name, _ := b.name(r.author)
	b.push(e, words("[run of %s by %s: %s, %s, %d calls; it ended with:]\n%s", label(r.harness), name,
		label(p.Status), e.Received().Sub(r.began).Round(time.Second), r.calls, foreign(r.last)))
}

// line adds a round or a result of a bot.
func (b *builder) line(x note) {
	var p struct {
		Message    json.RawMessage
		ToolCallID string
		ToolName   string
		IsError    bool
	}
	if json.Unmarshal(x.Payload, &p) != nil {
		return
	}
	switch mine := x.AuthorID == b.journal.Bot; {
	case x.typ == thread.TypeRound && !mine:
		b.other(x.Entry, p.Message)
	case x.typ == thread.TypeRound:
		b.own(x.Entry, x.reaction, model.Message{Role: model.Assistant, Parts: partsOf(p.Message)})
	case mine:
		b.own(x.Entry, x.reaction, model.Message{Role: model.User, Parts: []model.Part{{Result: &model.Result{
			CallID: p.ToolCallID, Text: data(p.ToolName, cut(textOf(p.Message), mostChat)), IsError: p.IsError,
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
		foreign(cut(textOf(message), mostChat)))
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
