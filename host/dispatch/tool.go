package dispatch

import (
	"context"
	"encoding/json"
	"slices"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/thread"
)

// Tool is a tool that bots call: what a model is shown of it, who may call it, and what it does. Package tools below
// this one has those of arbe.
type Tool struct {
	model.Tool
	Asked bool // a bot has it only where its house's settings for the bot name it
	Acts  bool // it changes something: it runs only for humans of the house, who must be members when it runs
	Most  int  // calls in one reaction; 0 for no limit of its own

	// Run has the effect of a call, once for each key: called again with the same one, it returns the same. Its error
	// is the host's, as where the rows can't be reached: the call is run again, perhaps by another host, and is given
	// up after two minutes. The end of ctx ends Run, and not what a call has begun: the next Run continues with that.
	// Calls of a tool that does not act may run at the same time.
	Run func(ctx context.Context, c ToolCall) (ToolResult, error)
	// Stop ends what a call has begun. It is called where a reaction ends before the result of a call, or the call is
	// given up, also for a call that has not begun; of the call it gets the ids. nil for a tool with nothing to end.
	Stop func(ctx context.Context, c ToolCall) error
}

// ToolCall is a call of a tool, as it stands on the thread.
type ToolCall struct {
	Key       string // of its effect, as Tool.Run has it: an id that is valid for an entry, a thread and a command
	Thread    string
	Reaction  string
	Bot       string
	Room      Room         // as the rows have it now
	Depth     int          // of the triggers that the reaction answers
	Root      *thread.Root // the oldest of the human chats that began it; nil for none
	Arguments json.RawMessage
}

// Via returns the origin of a chat that the call posts on another thread: a link of the chain that it answers. It
// returns false where the chain is as long as it may be, so that no bot would react.
func (c ToolCall) Via() (v *thread.Via, ok bool) {
	v = &thread.Via{ThreadID: c.Thread, Reaction: c.Reaction, Depth: c.Depth + 1, Root: c.Root}
	return v, v.Depth < maxDepth
}

// ToolResult is the result of a call, as a model reads it.
type ToolResult struct {
	Text    string
	IsError bool
	Invalid bool // the arguments are not those of the tool. After some such results in a row a bot has no tools
}

// mostInvalid is how many results in a row may be about invalid arguments.
const mostInvalid = 3

// mostResult is how much of a result is on the thread, in bytes.
const mostResult = 64 << 10

// toolsOf returns the names of the tools that a bot may call.
func (h *Host) toolsOf(b Bot) (names []string) {
	for _, t := range h.Tools {
		if on, set := b.Tools[t.Name]; on || !set && !t.Asked {
			names = append(names, t.Name)
		}
	}
	return names
}

// specs returns what a model is shown of the tools that a reaction may call.
func (h *Host) specs(j *Journal) (specs []model.Tool) {
	for _, t := range h.Tools {
		if slices.Contains(j.Tools, t.Name) {
			specs = append(specs, t.Tool)
		}
	}
	return specs
}
