// Package view makes the items of a thread from its entries: what a person sees of the thread, in its order. It is
// pure: it uses no clock, file, width, colour or HTML. Its painters decide how an item looks: cmd/internal/screen on
// a terminal, host/page as HTML.
//
// A Builder takes entries one by one, from any place of a thread on, and returns Changes: a new item, or one that
// replaces the item with the same ID, as a call that has got its result. A piece that is built on its own differs from
// the same part of the whole thread where a thing is cut in two: a result whose call is in an earlier piece is an item
// of its own (KindResult), and its call is Running in that piece; the second half of a verdict is an item of its own; a
// chat is Undelivered, and what delivers it is an item of its own (KindDelivery); and a run's start has no Rule.Was
// where the run before it is in an earlier piece. Set Builder.Runs for a piece of a thread that has had a run.
//
// A bot's reply is an item with a Reaction, and what the bot wrote and called on the way to it are others: a painter
// folds them in front of the reply. While a reaction has not ended, Builder.Answering has its text so far.
// Bots and other authors stand in items by the ids that the log has, which painters replace by names where they have
// them.
//
// A Watch and a Pulse report whether a run works, waits, is silent or dead. Lines reads the colours in a tool's
// output, and Visible replaces the characters of a text that a reader would not see.
//
// # Trust
//
// An agent, a tool or another writer chose all texts of an item. They may have control characters, escape sequences,
// characters that change the direction of text, and HTML. A painter passes a text through Visible, or a tool's output
// through Lines, and escapes the result for its medium. Only an ID, a Kind and the other constants of this package
// are safe as they are. An ID has the characters A-Za-z0-9._:~-/ and no others.
package view

import (
	"encoding/json"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Kind is the kind of an item. It decides which members of the Item are set.
type Kind string

// The kinds of items. Each has ID, Entry, Kind and Time, and the members that stand behind it.
const (
	KindChat     Kind = "chat"     // what a person or another agent wrote: Author, Text, Images, Input; Run of a prompt
	KindDelivery Kind = "delivery" // chats of an earlier piece were delivered: Chats. A painter shows it there, or not
	KindText     Kind = "text"     // text of the model, markdown: Model, Text
	KindThinking Kind = "thinking" // thoughts of the model: Model, Text; "" where the provider hides them
	KindImage    Kind = "image"    // an image in the model's reply: Model, Images
	KindStop     Kind = "stop"     // a reply did not end well: Model, Stop
	KindCall     Kind = "call"     // a tool call, with its result once it has one: Model, Call
	KindResult   Kind = "result"   // a result whose call is not in this piece of the thread: Result
	KindRule     Kind = "rule"     // a line across the page, as where a run starts: Run, Harness, Rule
	KindNotice   Kind = "notice"   // one sentence, as "cancel requested": Run, Author, Notice
	KindVerdict  Kind = "verdict"  // the end of a run: Run, Verdict
	KindEnd      Kind = "end"      // the end of a bot's reply in an earlier piece: Reaction. A painter shows nothing
)

// Item is one thing that is shown of a thread. An entry gives none, one or several: a reply with a text and two calls
// gives three.
type Item struct {
	// ID is unique on the thread and stable: the id of the entry, with "/1", "/2" … behind it for its second item and
	// those that follow. It serves as anchor, and as key where a later Change replaces the item.
	ID string
	// Entry is the id of the entry that the item was made from. A call's result is in another one, Result.Entry.
	Entry string
	Kind  Kind
	Time  time.Time // of the writer's clock; zero where the entry has none

	Run      string    // id of the run, where the entry carries it: prompts, rules, notices, verdicts
	Harness  string    // its name, of what an agent wrote; "" else
	Author   string    // of a chat or a request, or a bot; "" where it is not known
	Model    string    // of a reply; "" where it is not known
	Subagent *Subagent // nil for the thread's own conversation
	Reaction *Reaction // nil for what is of no bot's reaction
	From     string    // id of the thread from which a bot has posted a chat; "" for none
	ByAgent  bool      // an agent wrote the chat, and its text is markdown: a bot's, or the result of a task
	Cut      bool      // the entry was too large: long strings in it were shortened, with a mark at their end

	Text   string
	Images []Image
	Input  *Input   // of a chat that is for the thread's agent; nil of one that is a run's prompt, or on record
	Chats  []string // ids of the chats' entries

	Call    *Call
	Result  *Result
	Stop    *Stop
	Rule    *Rule
	Notice  *Notice
	Verdict *Verdict

	pieces  bool // a call whose output has come in pieces
	answers bool // a turn of a mirror that names no chats: it answers all before it
}

// Delivery is whether the agent of a thread has a chat.
type Delivery string

// Deliveries of a chat.
const (
	Undelivered Delivery = "undelivered" // up to the end of the piece no agent has it; see Builder.Runs
	Delivered   Delivery = "delivered"
	Refused     Delivery = "refused" // it can never reach an agent
)

// Input is the delivery of a chat that is input for an agent.
type Input struct {
	Delivery Delivery
	Deliver  string // when a live run gives it to its agent: a Deliver constant of package thread
	Reason   string // of a refused one
}

// Waits reports whether a chat is input that no agent has yet.
func (i *Input) Waits() bool { return i != nil && i.Delivery == Undelivered }

// Sentence returns what a reader has to know of a chat that an agent does not have; "" for one that it has.
func (i *Input) Sentence() string {
	switch {
	case i == nil:
		return ""
	case i.Delivery == Refused:
		return because("refused", i.Reason)
	case i.Delivery == Undelivered && i.Deliver == thread.DeliverFollowUp:
		return "not delivered yet; for after the turn"
	case i.Delivery == Undelivered:
		return "not delivered yet"
	}
	return ""
}

// Subagent is an agent that the main agent gave a part of its work. Its items stand among those of the main
// conversation, and those of several subagents among each other: group them by ID. Its first item is its task, a
// KindChat. Its result is that of the call in the main conversation that started it.
type Subagent struct {
	ID string // of its session, or its name in the session of the main agent; "" where it has none
	Of string // session of the main agent
}

// Image is an image of an item, without its data. ImageData returns that.
type Image struct {
	Entry string // id of the entry that has it
	N     int    // its number in that entry, from 0
	Type  string // the MIME type that the writer gave; not checked
	Bytes int    // about how large it is, decoded
}

// State is the state of a tool call.
type State string

// The states of a call.
const (
	Running    State = "running"    // no result yet; of a run that is not Working there may never be one
	Done       State = "done"       // it has a result
	Failed     State = "failed"     // it has a result that is an error
	Unanswered State = "unanswered" // its run ended, or another began, before there was a result
)

// Call is a tool call and its result.
type Call struct {
	ID        string          // the agent's own id of the call; unique in its session at most
	Name      string          // of the tool
	Main      string          // the argument to show in one line: the command, path, pattern or URL; "" for none
	More      bool            // Arguments has more than Main
	Arguments json.RawMessage // all of them, as the model gave them; mostly an object
	State     State
	Diff      *Diff   // what an edit asks for: see Item.Diff
	Result    *Result // nil while there is none
	Child     string  // id of the thread of the task that a bot delegates by the call; "" for any other call
}

// Task returns the id of the thread of the task that a call has delegated; "" for another call, and for a task that was
// refused.
func (c *Call) Task() string {
	if c == nil || c.State != Done {
		return ""
	}
	return c.Child
}

// Result is the result of a tool call.
type Result struct {
	CallID   string
	Name     string // of the tool; "" where it is not known
	Entry    string // id of the result's entry
	Text     string // the output, perhaps with escape sequences: see Lines. Codex's header is taken off
	Images   []Image
	Failed   bool
	ExitCode *int          // of the command, where codex has it; nil where it is not known
	Duration time.Duration // of the call; 0 where it is not known
	Time     time.Time
	Diff     *Diff // what an edit did, where the agent reports it: see Item.Diff
	// Partial is a piece of the output of a command that a person runs in the box (arbe exec). Its Result, which
	// ends the command, comes later.
	Partial bool
	Pieces  bool // of such a command: its output came in pieces before this result
	Cut     bool // see Item.Cut
}

// Stop is why a reply ended before its end.
type Stop struct {
	Reason  string // error, aborted, length or refusal
	Message string // of an error. The agent may try again: an error that ends the run is in its verdict
}

// Verdict is the end of a run.
type Verdict struct {
	Status      string // completed, failed, cancelled or orphaned
	Provisional bool   // a host posted it about a run that fell silent. The runner's own may still replace it
	Replaced    bool   // it was provisional, and the runner's own verdict has come: a later item
	Class       string // errorClass of a failed run: provider_error, timeout
	Message     string // why it failed, or who cancelled it and why; "" where that is not known
	Reason      string // of an orphaned run: no_output, runner_lost, silent or box_gone
	Stderr      string // the last lines of the agent's stderr, of a failed run, where Message does not have them
	// HasTotals reports that the figures below are known. Those of a failed or orphaned run come with the verdict's
	// second entry, in a Change that replaces the item.
	HasTotals bool
	ExitCode  *int
	Signal    string // that ended the agent; "" for none
	Duration  time.Duration
	Lines     int64   // mirrored in this run
	Tokens    float64 // 0 where they are not known
	Cost      float64 // US dollars; 0 where it is not known

	second bool // the second entry, or the only one, has come
	half   bool // made from the second entry alone
}

// Diff returns what the item's call did to files; nil where it is no edit, or failed.
func (i Item) Diff() *Diff {
	r := i.Result
	if i.Call != nil {
		r = i.Call.Result
	}
	switch {
	case r != nil && r.Failed:
		return nil
	case r != nil && r.Diff != nil:
		return r.Diff
	case i.Call != nil:
		return i.Call.Diff
	}
	return nil
}

// Change is an item that is new, or that replaces the one with its ID.
type Change struct {
	Item     Item
	Replaces bool
}
