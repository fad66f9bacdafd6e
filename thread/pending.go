package thread

import (
	"encoding/json"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// When a live run gives a chat to its agent.
const (
	DeliverSteer     = "steer"     // as soon as the agent takes it, in the middle of a turn, too
	DeliverFollowUp  = "followUp"  // when the turn has ended
	DeliverInterrupt = "interrupt" // at once: the turn is cut off
)

// PendingChat is a chat that no run has had yet.
type PendingChat struct {
	ID      string            `json:"id"`
	Author  string            `json:"author,omitempty"`
	Deliver string            `json:"deliver"` // a Deliver constant
	Text    string            `json:"text,omitempty"`
	Images  []json.RawMessage `json:"images,omitempty"`  // blocks {"type":"image","mimeType":…,"data":…}
	Omitted bool              `json:"omitted,omitempty"` // Text and Images are not held: ParseChat has them of the entry
}

func (c PendingChat) size() (n int) {
	for _, image := range c.Images {
		n += len(image)
	}
	return n + len(c.Text)
}

// maxPendingBytes bounds the content that a Pending holds. It is more than that of any one entry.
const maxPendingBytes = 16 << 20

// Pending folds a thread's entries into the chats that no run has had yet, in the thread's order: each is a chat that
// is no mirrored line, that no session has on record, and that no run has refused. The prompt of another run is one
// where it waits (Tasks). A session has a chat on record where a mirrored line of kind prompt names it, in chat or
// chats. A turn of another mirror, which names none, answers all chats before it.
//
// Add every entry in the thread's order. The zero value is an empty thread. Its JSON is its whole state: a Pending that
// is read from it continues with the thread's next entry. It holds the content of at most 16 MiB of chats, and of the
// chats behind them the ids.
type Pending struct {
	// Run is the run that the chats are for: a chat with its id is pending, too. "" for no run. It is set before the
	// first Add.
	Run string

	chats []PendingChat // those that wait, and the prompts of tasks
	tasks Tasks         // of other runs
	held  int           // bytes of the chats' content
}

// Add adds the thread's next entry.
func (p *Pending) Add(e Entry) {
	fields, _ := ParseMirrored(e.Payload)
	p.AddParsed(fields, e)
}

// AddParsed is Add for a caller that has the payload's fields, as ParseLine or ParseMirrored returns them.
func (p *Pending) AddParsed(fields Line, e Entry) {
	switch {
	case fields.Type == TypeChat:
		p.addChat(e)
	case fields.Type == TypeRefused:
		p.Drop(fields.Chat)
	case len(p.chats) == 0:
	case fields.Type == TypeStatus, fields.Type == TypeFailed, fields.Type == TypeOrphaned:
		if signal, err := Scan(e.Payload); err == nil {
			p.Drop(p.tasks.Signal(signal)...)
		}
	default:
		ids, all := fields.Delivers()
		p.Drop(ids...)
		if all {
			p.chats, p.tasks, p.held = nil, Tasks{}, 0
		}
	}
}

// addChat adds a chat. A prompt of another run may come to wait.
func (p *Pending) addChat(e Entry) {
	chat, run, ok := parseInput(e)
	switch prompt := IsPrompt(e.ID); {
	case !ok || run != "" && run != p.Run && !prompt:
		return
	case prompt && run == p.Run:
		p.Drop(p.tasks.repeat(chat.Text)...)
	case prompt:
		p.Drop(p.tasks.Add(chat.ID, chat.Text)...)
	}
	p.keep(chat)
}

// Chats returns the pending chats, in the thread's order. It is valid until the next Add.
func (p *Pending) Chats() []PendingChat {
	if p.tasks.Waiting() == len(p.tasks.all) {
		return p.chats
	}
	var all []PendingChat
	for _, chat := range p.chats {
		if !p.tasks.open(chat.ID) {
			all = append(all, chat)
		}
	}
	return all
}

func (p *Pending) keep(chat PendingChat) {
	if n := chat.size(); p.held+n > maxPendingBytes {
		chat.Text, chat.Images, chat.Omitted = "", nil, true
	} else {
		p.held += n
	}
	p.chats = append(p.chats, chat)
}

// Drop drops the chats with these ids: a run has had them, whatever the thread has. Mostly each is the first one.
func (p *Pending) Drop(ids ...string) {
	for _, id := range ids {
		p.tasks.Drop(id)
		i := slices.IndexFunc(p.chats, func(c PendingChat) bool { return c.ID == id })
		if i < 0 {
			continue
		}
		p.held -= p.chats[i].size()
		if i == 0 {
			p.chats[0] = PendingChat{} // frees its content
			p.chats = p.chats[1:]
			continue
		}
		p.chats = slices.Delete(p.chats, i, i+1)
	}
}

// pendingState is the JSON of a Pending.
type pendingState struct {
	Run   string        `json:"run,omitempty"`
	Chats []PendingChat `json:"chats"`
	Tasks Tasks         `json:"tasks,omitzero"`
}

// MarshalJSON returns the state.
func (p Pending) MarshalJSON() ([]byte, error) {
	return Marshal(pendingState{p.Run, p.chats, p.tasks}), nil
}

// UnmarshalJSON replaces the Pending with the one whose state MarshalJSON returned.
func (p *Pending) UnmarshalJSON(b []byte) error {
	var s pendingState
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	*p = Pending{Run: s.Run, chats: s.Chats, tasks: s.Tasks}
	for _, chat := range p.chats {
		p.held += chat.size()
	}
	return nil
}

// ParseChat returns the chat of an entry that is input for the run, or for any run where run is "". false: the entry is
// none. That is a mirrored line, the prompt of another run, and a chat without text and images.
func ParseChat(e Entry, run string) (chat PendingChat, ok bool) {
	chat, of, ok := parseInput(e)
	return chat, ok && (of == "" || of == run)
}

// ParseInput returns the chat of an entry that is input for any run: also where it is a run's prompt.
func ParseInput(e Entry) PendingChat {
	chat, _, _ := parseInput(e)
	return chat
}

// ParsePrompt returns the chat of an entry that is a run's prompt; false for any other entry.
func ParsePrompt(e Entry) (chat PendingChat, ok bool) {
	chat, _, ok = parseInput(e)
	return chat, ok && IsPrompt(e.ID)
}

// IsPrompt reports whether an id is that of a run's prompt.
func IsPrompt(id string) bool {
	_, is := RunOf(id)
	return is && strings.HasSuffix(id, promptSuffix)
}

// parseInput returns a chat, and the run that it is for; "" for any. false: the entry is a mirrored line, or has
// neither text nor images.
func parseInput(e Entry) (chat PendingChat, run string, ok bool) {
	var typ, own, deliver, text string
	var message []byte
	mirrored := false
	jsonscan.Members(e.Payload, func(key, v []byte) {
		switch string(key) {
		case "type":
			typ = jsonscan.String(v)
		case "runId":
			own = jsonscan.String(v)
		case "deliver":
			deliver = jsonscan.String(v)
		case "text":
			text = jsonscan.String(v)
		case "message":
			message = v
		case "session":
			mirrored = jsonscan.IsObject(v)
		}
	})
	if of, is := RunOf(e.ID); is && own == "" {
		own = of // a prompt of older software
	}
	if typ != TypeChat || mirrored {
		return chat, own, false
	}
	chat = PendingChat{ID: e.ID, Author: e.AuthorID, Deliver: DeliverSteer, Text: text}
	if deliver == DeliverFollowUp || deliver == DeliverInterrupt {
		chat.Deliver = deliver
	}
	said := ""
	if said, chat.Images = contentOf(message); chat.Text == "" {
		chat.Text = said
	}
	return chat, own, strings.TrimSpace(chat.Text) != "" || len(chat.Images) > 0
}

// contentOf returns the text and the images of a message: its blocks, or its content where that is a text.
func contentOf(message []byte) (text string, images []json.RawMessage) {
	var texts []string
	jsonscan.Members(message, func(key, content []byte) {
		if string(key) != "content" {
			return
		}
		if jsonscan.IsString(content) {
			texts = append(texts, jsonscan.String(content))
			return
		}
		jsonscan.Elements(content, func(block []byte) {
			var b struct{ Type, Text, MimeType, Data string }
			if !jsonscan.IsObject(block) || json.Unmarshal(block, &b) != nil {
				return
			}
			switch {
			case b.Type == "text":
				texts = append(texts, b.Text)
			case b.Type == "image" && b.MimeType != "" && b.Data != "":
				images = append(images, slices.Clone(block))
			}
		})
	})
	return strings.Join(texts, "\n"), images
}

// OpensTurn reports whether a mirrored line belongs to a turn of the agent that its session is of: a live run that has
// waited works again. An agent may write other lines while it waits.
func (l Line) OpensTurn() bool {
	if l.IsSubagent() || l.Reaction != "" {
		return false
	}
	return isReply(l.Type) || l.Session != nil && (l.Type == TypeChat || l.Kind == KindPrompt || l.Kind == KindUser)
}

// isReply reports whether a payload's type is that of an agent's reply or of a tool's result.
func isReply(typ string) bool {
	prefix, kind, _ := strings.Cut(typ, ".")
	return prefix != "signal" && (kind == KindAssistant || kind == KindToolResult)
}
