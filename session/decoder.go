package session

import (
	"cmp"
	"maps"
)

// Decoder decodes a session file's lines in their order, and fills in what a line has from those before it: provider
// and model of a turn, the name of the tool of a result. The zero value with a Dialect is ready for a file's first
// line.
type Decoder struct {
	Dialect

	context Context
	tools   map[string]string // names of the tools of the latest calls, by the call's id
	older   map[string]string // of the calls before those
}

// Context is a Decoder's memory of earlier lines, for those that follow.
type Context struct {
	Provider, Model string // of the turns that follow
	Reply           string // id of the last reply
	Calls           []Call
}

// Context returns what the Decoder remembers, without the calls.
func (d *Decoder) Context() Context { return d.context }

// Add adds to what the Decoder remembers, as if it had decoded the lines of h. It may be called for parts, in order.
func (d *Decoder) Add(h Context) {
	d.context.Provider = cmp.Or(h.Provider, d.context.Provider)
	d.context.Model = cmp.Or(h.Model, d.context.Model)
	d.context.Reply = cmp.Or(h.Reply, d.context.Reply)
	for _, c := range h.Calls {
		if d.tools == nil || len(d.tools) >= mostCalls {
			d.tools, d.older = map[string]string{}, d.tools
		}
		d.tools[c.ID] = c.Name
	}
}

// Clone returns an independent Decoder that remembers the same.
func (d *Decoder) Clone() Decoder {
	clone := *d
	clone.tools, clone.older = maps.Clone(d.tools), maps.Clone(d.older)
	return clone
}

// mostCalls is how many calls a Decoder remembers at least; it remembers at most twice as many. A result follows its
// call soon.
const mostCalls = 1000

// Next decodes the file's next line.
func (d *Decoder) Next(line []byte) Entry {
	e := d.Decode(line)
	if e.Side {
		return e
	}
	if e.Reply != "" && e.Reply == d.context.Reply {
		e.Usage = nil // the reply's first line has it
	}
	d.Add(Context{Provider: e.Provider, Model: e.Model, Reply: e.Reply, Calls: e.Calls})
	return d.fill(e)
}

// Again decodes a line that Next has decoded to e, after a change of strings that are not structural (see Rewriter).
func (d *Decoder) Again(line []byte, e Entry) Entry {
	again := d.Decode(line)
	if len(e.Usage) == 0 {
		again.Usage = nil
	}
	return d.fill(again)
}

func (d *Decoder) fill(e Entry) Entry {
	switch e.Kind {
	case Assistant:
		e.Provider = cmp.Or(e.Provider, d.context.Provider)
		e.Model = cmp.Or(e.Model, d.context.Model)
	case ToolResult:
		if e.ToolName == "" && !e.Whole {
			if e.ToolName = cmp.Or(d.tools[e.ToolCallID], d.older[e.ToolCallID]); e.ToolName != "" &&
				len(e.Message) > 1 {
				e.Message = append([]byte(`{"toolName":`+quoted(e.ToolName)+`,`), e.Message[1:]...)
			}
		}
	}
	return e
}
