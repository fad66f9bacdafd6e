package session

// Decoder decodes a session file's lines in their order, and fills in what a line leaves to those before it: whose turn it is, which tool answers. The zero
// value with a Dialect is ready for a file's first line.
type Decoder struct {
	Dialect

	provider, model string
	reply           string            // the last
	tools           map[string]string // the names of the tools that were called, by call
}

// mostCalls bounds what is remembered of calls. A result follows its call soon.
const mostCalls = 10_000

// Next decodes the file's next line.
func (d *Decoder) Next(line []byte) Entry {
	e := d.Decode(line)
	if e.Side {
		return e
	}
	if e.Provider != "" {
		d.provider = e.Provider
	}
	if e.Model != "" {
		d.model = e.Model
	}
	if e.Reply != "" && e.Reply == d.reply {
		e.Usage = nil // the reply's first line has said it
	}
	if e.Reply != "" {
		d.reply = e.Reply
	}
	for _, c := range e.Calls {
		if d.tools == nil || len(d.tools) >= mostCalls {
			d.tools = map[string]string{}
		}
		d.tools[c.ID] = c.Name
	}
	return d.fill(e)
}

// Again decodes a line that Next has decoded to e, and that was changed since in what it says, not in what it is.
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
		if e.Provider == "" {
			e.Provider = d.provider
		}
		if e.Model == "" {
			e.Model = d.model
		}
	case ToolResult:
		if e.ToolName == "" && !e.Whole {
			if e.ToolName = d.tools[e.ToolCallID]; e.ToolName != "" && len(e.Message) > 1 {
				e.Message = append([]byte(`{"toolName":`+quoted(e.ToolName)+`,`), e.Message[1:]...)
			}
		}
	}
	return e
}
