package page

import (
	"encoding/json"
	"fmt"
	"html/template"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/page/markup"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// item is an item of a thread as the page shows it.
type item struct {
	view.Item
	beside
	Thread string  // "" in a file
	File   *Export // that the item is written to; nil on the page
}

// Bounds of what is shown of an output and of arguments. The raw entry has all of it.
const (
	mostHead = 32 << 10 // bytes of an output's beginning
	mostTail = 32 << 10 // and of its end
	mostArgs = 32 << 10
)

// At returns the item's time, for people.
func (i item) At() string {
	if i.Time.IsZero() {
		return ""
	}
	return i.Time.UTC().Format("15:04:05")
}

// Date returns the item's date and time, for people.
func (i item) Date() string { return i.Time.UTC().Format("2006-01-02 15:04:05 UTC") }

// Stamp returns the item's time, for machines.
func (i item) Stamp() string {
	if i.Time.IsZero() {
		return ""
	}
	return thread.Stamp(i.Time)
}

// Sub returns the key that groups the items of a subagent, and those on the way to a bot's reply; "" for the thread's
// own conversation.
func (i item) Sub() string {
	switch {
	case i.isStep():
		return "r" + i.Reaction.ID
	case i.Subagent != nil:
		return "s" + i.Subagent.ID
	}
	return ""
}

// isStep reports whether a bot wrote or called the item on the way to its reply.
func (i item) isStep() bool {
	switch i.Kind {
	case view.KindText, view.KindThinking, view.KindImage, view.KindStop, view.KindCall, view.KindResult:
		return i.Reaction != nil && !i.Reaction.Reply
	}
	return false
}

// Steps returns the name of the bot of such an item; "" for another one.
func (i item) Steps() string {
	if !i.isStep() {
		return ""
	}
	return i.Who()
}

// Answered returns the id of the reaction that the item is of; "" for none, and for one that can't be.
func (i item) Answered() string {
	if i.Reaction == nil || !thread.ValidID(i.Reaction.ID) {
		return ""
	}
	return i.Reaction.ID
}

// IsHidden reports whether nothing is seen of the item: it changes others.
func (i item) IsHidden() bool { return i.Kind == view.KindDelivery || i.Kind == view.KindEnd }

// IsReply reports whether the item is a bot's reply.
func (i item) IsReply() bool { return i.Reaction != nil && i.Reaction.Reply }

// Who returns the name of the item's author; "" where it is not known.
func (i item) Who() string {
	if i.IsBot() {
		return i.names.bot(i.Author)
	}
	return i.names.author(i.Author)
}

// Origin returns the id of the thread from which a bot has posted the item, for a link; "" for none. A writer chose it.
func (i item) Origin() string { return i.linked(i.From) }

// OriginName returns what a reader calls that thread; "" for an item of this one.
func (i item) OriginName() string {
	if from := i.others[i.From]; from != nil && from.Title != "" {
		return from.Title
	}
	if i.From != "" {
		return "another thread"
	}
	return ""
}

// linked returns the id of another thread as it stands in a link; "" for one that the viewer can't open.
func (i item) linked(id string) string {
	if i.closed || !thread.ValidThread(id) {
		return ""
	}
	return id
}

// Delegated returns the thread of the task that the item's call has delegated; nil for none that is known.
func (i item) Delegated() *row { return i.others[i.Call.Task()] }

// Answer returns the id of the entry with the result of a call; "" until it comes.
func (i item) Answer() string {
	if i.Call != nil && i.Call.Result != nil {
		return i.Call.Result.Entry
	}
	return ""
}

// Child returns the id of the thread of a child that the item is about, for a link; "" for none. A writer chose it.
func (i item) Child() string {
	if i.Notice != nil {
		return i.linked(i.Notice.Thread)
	}
	return i.linked(i.Call.Task())
}

// Link returns the address of a pull request on the web; "" for none. A writer chose it.
func (i item) Link() string {
	if i.Notice == nil {
		return ""
	}
	return webAddress(i.Notice.URL)
}

// Task returns the task of a subagent where the item has it: the first line of its first chat.
func (i item) Task() string {
	if i.Subagent == nil || i.Kind != view.KindChat {
		return ""
	}
	return firstLine(i.Text)
}

// Summary returns the text of a summary, markdown; "" for another item.
func (i item) Summary() string {
	if i.Rule == nil {
		return ""
	}
	return i.Rule.Summary
}

// Peek returns the beginning of thoughts; "" for another item.
func (i item) Peek() string {
	if i.Kind != view.KindThinking {
		return ""
	}
	return firstLine(i.Text)
}

// Bad reports whether a notice is about something that went wrong.
func (i item) Bad() bool { return i.Notice != nil && i.Notice.Bad }

// Sentence returns an item of one sentence. A step of making the box has its duration.
func (i item) Sentence() string {
	text := i.Item.Sentence()
	if i.Notice != nil && i.Notice.Bot != "" {
		return i.names.bot(i.Notice.Bot) + " " + i.Notice.Text
	}
	if i.Notice == nil || i.Notice.Kind != view.NoticeSetup {
		return text
	}
	text = "box: " + text
	if took := i.Notice.Duration; took >= 100*time.Millisecond {
		text += " " + seconds(took)
	}
	return text
}

// Whole returns the result of a call, or of a result whose call is elsewhere; nil for none.
func (i item) Whole() *view.Result {
	if i.Call != nil {
		return i.Call.Result
	}
	return i.Result
}

// State returns the state of a call.
func (i item) State() string {
	switch {
	case i.Call != nil:
		return string(i.Call.State)
	case i.Result != nil && i.Result.Failed:
		return string(view.Failed)
	}
	return string(view.Done)
}

// Tool returns the tool's name.
func (i item) Tool() string {
	if i.Call != nil {
		return i.Call.Name
	}
	return i.Result.Name
}

// Took returns with what exit code a call failed, and how long it took, as far as that is known.
func (i item) Took() string {
	r := i.Whole()
	if r == nil {
		return ""
	}
	var parts []string
	if r.ExitCode != nil && *r.ExitCode != 0 {
		parts = append(parts, fmt.Sprint("exit ", *r.ExitCode))
	}
	if r.Duration > 0 {
		parts = append(parts, seconds(r.Duration))
	}
	return strings.Join(parts, " · ")
}

// seconds returns a duration for people: a short one in tenths of a second.
func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return span(d)
}

// diffLine is a line of a diff with its number in the file: after the edit, or before it for a line that was removed.
type diffLine struct {
	view.DiffLine
	Number int // 0 where it is not known
}

// numbered returns the lines of a hunk with their numbers.
func numbered(h view.Hunk) []diffLine {
	all := make([]diffLine, len(h.Lines))
	before, after := h.Old, h.New
	for i, l := range h.Lines {
		all[i] = diffLine{l, 0}
		switch {
		case h.Old == 0 || h.New == 0:
		case l.Op == '-':
			all[i].Number = before
			before++
		case l.Op == '+':
			all[i].Number = after
			after++
		default:
			all[i].Number = after
			before, after = before+1, after+1
		}
	}
	return all
}

// Arguments returns the arguments of a call, a member a line; "" where the call's line or its diff shows them.
func (i item) Arguments() string {
	if i.Call == nil || !i.Call.More || i.Diff() != nil {
		return ""
	}
	b, err := json.MarshalIndent(i.Call.Arguments, "", "  ")
	if err != nil {
		return string(i.Call.Arguments)
	}
	return cut(string(b), mostArgs, 0)
}

// Output returns the output of a call as HTML.
func (i item) Output() template.HTML {
	r := i.Whole()
	if r == nil {
		return ""
	}
	return markup.Output(cut(r.Text, mostHead, mostTail))
}

// Pictures returns the images of a reply, a chat or a result.
func (i item) Pictures() []view.Image {
	if r := i.Whole(); r != nil {
		return r.Images
	}
	return i.Images
}

// cut returns the beginning and the end of a text with a mark between them; a text that is little longer as it is.
func cut(text string, head, tail int) string {
	if len(text) <= head+tail+1000 {
		return text
	}
	return strings.ToValidUTF8(text[:head], "") + fmt.Sprintf("\n… %s …\n", view.Size(int64(len(text)-head-tail))) +
		strings.ToValidUTF8(text[len(text)-tail:], "")
}

// Totals returns the figures of a verdict, for people.
func (i item) Totals() string { return strings.Join(i.Verdict.Figures(), " · ") }

// group is items that stand together: one of the thread's own conversation, or those of a subagent in a piece.
type group struct {
	Sub   string // as item.Sub; "" for an item of the thread's own conversation
	Items []item
}

// Task returns the task of a subagent, which its first chat has; "" where that is in an earlier piece.
func (g *group) Task() string {
	for _, i := range g.Items {
		if task := i.Task(); task != "" {
			return task
		}
	}
	return ""
}

// Steps returns the name of the bot whose steps a group has; "" for another group.
func (g *group) Steps() string { return g.Items[0].Steps() }

// grouped groups the items of a piece: those of a subagent or of a bot where its first one stands.
func grouped(items []view.Item, id string, of beside) (groups []*group) {
	subs := map[string]*group{}
	for _, one := range items {
		i := item{Item: one, Thread: id, beside: of}
		g := subs[i.Sub()]
		if g == nil || i.Sub() == "" {
			g = &group{Sub: i.Sub()}
			subs[g.Sub] = g
			groups = append(groups, g)
		}
		g.Items = append(g.Items, i)
	}
	return groups
}
