package live

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/session"
)

// Record is one record of a run's journal. A worker that takes over reads all of them, in their order.
type Record struct {
	Op    Op       `json:"op"`
	ID    string   `json:"id,omitempty"`    // harness.Message.ID; of an interrupt its own; of a post that of the entry
	Chat  string   `json:"chat,omitempty"`  // the chat's id
	Chats []string `json:"chats,omitempty"` // taken: the chats' ids; turn: those that it took in
	Idles int      `json:"idles,omitempty"` // of a turn: number of the agent's idle reports so far
	Line  int      `json:"line,omitempty"`  // number of a line in the run; see the Ops

	Why string `json:"why,omitempty"` // reason of a refused chat

	// Of a put.
	Attempt int    `json:"attempt,omitempty"` // how often the chat was put before
	Text    string `json:"text,omitempty"`    // as the agent gets it
	Prompt  bool   `json:"prompt,omitempty"`  // the text is that of the command line, which may have secrets
	Sum     string `json:"sum,omitempty"`     // of such a text: TextSum
	Images  int    `json:"images,omitempty"`  // their number
	Long    bool   `json:"long,omitempty"`    // the line is longer than the pipe

	Entry json.RawMessage `json:"entry,omitempty"` // of a post
	State *state          `json:"state,omitempty"` // of a state
}

// Op is the kind of a Record.
type Op string

// The operations.
const (
	OpState     Op = "state"     // all records before this one, added up
	OpAgent     Op = "agent"     // a process begins to become the agent: it has nothing of what was written before
	OpPut       Op = "put"       // the message is about to be written; only lines from Line on can have it
	OpThrough   Op = "through"   // a long line is written whole
	OpAccepted  Op = "accepted"  // the agent has accepted the message
	OpBack      Op = "back"      // the message will never be taken in: the chat may be put again
	OpTaken     Op = "taken"     // the session has the chats on record, in this line
	OpInterrupt Op = "interrupt" // an interrupt is about to be written, maybe for a chat; without an ID: it was not
	OpAsked     Op = "asked"     // a request of the agent, which has this id, is about to be answered
	OpRefused   Op = "refused"   // the chat can never arrive
	OpHandled   Op = "handled"   // an extension of the agent has handled the chat: no line will have it
	OpTurn      Op = "turn"      // a turn has ended; Line is behind its last line
	OpPost      Op = "post"      // the entry is to be posted once the lines before Line are on the thread
	OpPosted    Op = "posted"    // the thread has the entry
)

// Sent is a message that was put.
type Sent struct {
	harness.Message

	Chat     string
	Line     int  // only lines from here on can have it
	Accepted bool // by the agent
	Torn     bool // it is longer than the pipe, and not known to be written whole

	Prompt  bool   // the text is that of the command line
	Sum     string // of such a text: TextSum
	Attempt int
	Back    bool // it will never be taken in
	Taken   bool
	TakenAt int // number of the line that has it
}

// Post is an entry to post.
type Post struct {
	ID    string
	Line  int // the lines before it come first
	Entry json.RawMessage
}

// state is the sum of the records.
type state struct {
	Agents      int              // number of processes that were to become the agent
	Turns       int              // number of turns that have ended
	TurnLine    int              // behind the last line of the last one
	Refused     int              // number of refused chats, those that an extension has handled included
	Handled     bool             // an extension has handled a chat
	Why         string           // reason for which the last other one was refused
	Requests    map[string]int   // numbers of the agent's requests, by their ids
	Interrupted bool             // the turn since then was interrupted by the runner
	CutOff      bool             // the last turn that has ended was
	Idles       int              // number of the agent's idle reports, the one of the last turn's end included
	Interrupt   [2]string        // id and chat of the interrupt since the last put; empty for none
	Sent        []*Sent          // in the order of writing
	Lines       map[int][]string // the chats in a line
	Done        map[string]bool  // chats that are taken in or refused
	Turn        []string         // chats that were taken in since the last turn's end
	Posts       []Post
}

// Ledger adds up the records of a journal. The zero value is that of an empty one. It is not safe for concurrent use.
type Ledger struct {
	state
	prompt string
}

// SetPrompt sets the text of messages that have none on record because it is the prompt of the command line.
func (l *Ledger) SetPrompt(text string) {
	l.prompt = text
	for _, s := range l.Sent {
		if s.Prompt {
			s.Text = text
		}
	}
}

// Add adds the journal's next record.
func (l *Ledger) Add(r Record) {
	switch r.Op {
	case OpState:
		if r.State != nil {
			l.state = *r.State
			l.SetPrompt(l.prompt)
		}
	case OpAgent:
		for _, s := range l.Sent {
			s.Back = true
		}
		l.Agents++
		l.Idles, l.Interrupted, l.Interrupt = 0, false, [2]string{}
	case OpPut:
		s := &Sent{
			Message: harness.Message{ID: r.ID, Text: r.Text, Images: make([]harness.Image, r.Images)},
			Chat:    r.Chat, Line: r.Line, Torn: r.Long, Prompt: r.Prompt, Sum: r.Sum, Attempt: r.Attempt,
		}
		if r.Prompt {
			s.Text = l.prompt
		}
		l.Sent = append(l.Sent, s)
		l.Interrupt = [2]string{}
	case OpThrough, OpAccepted, OpBack:
		if s := l.Find(r.ID); s != nil {
			s.Torn = s.Torn && r.Op != OpThrough
			s.Accepted = s.Accepted || r.Op == OpAccepted
			s.Back = s.Back || r.Op == OpBack
		}
	case OpTaken:
		l.take(r.Line, r.Chats)
	case OpInterrupt:
		l.Interrupt = [2]string{r.ID, r.Chat}
		l.Interrupted = l.Interrupted || r.ID != ""
	case OpAsked:
		if l.Requests == nil {
			l.Requests = map[string]int{}
		}
		if _, known := l.Requests[r.ID]; !known {
			l.Requests[r.ID] = len(l.Requests)
		}
	case OpRefused:
		l.Refused, l.Why = l.Refused+1, r.Why
		l.finish(r.Chat)
	case OpHandled:
		l.Refused, l.Handled = l.Refused+1, true
		l.finish(r.Chat)
	case OpTurn:
		l.Turns, l.TurnLine, l.Idles = l.Turns+1, r.Line, r.Idles
		l.CutOff, l.Interrupted = l.Interrupted, false
		l.Turn = slices.DeleteFunc(l.Turn, func(id string) bool { return slices.Contains(r.Chats, id) })
	case OpPost:
		l.Posts = append(l.Posts, Post{r.ID, r.Line, r.Entry})
	case OpPosted:
		l.Posts = slices.DeleteFunc(l.Posts, func(p Post) bool { return p.ID == r.ID })
	}
}

// take notes that the line with the number has the chats.
func (l *Ledger) take(number int, chats []string) {
	if l.Lines == nil {
		l.Lines = map[int][]string{}
	}
	l.Lines[number] = chats
	for _, id := range chats {
		l.Turn = append(l.Turn, id)
		l.finish(id)
		for _, s := range l.Sent {
			if s.Chat == id && !s.Taken {
				s.Taken, s.TakenAt = true, number
			}
		}
	}
}

func (l *Ledger) finish(chat string) {
	if l.Done == nil {
		l.Done = map[string]bool{}
	}
	l.Done[chat] = true
}

// Open returns the messages that the agent may have, and that no line of the session has, in the order of writing.
func (l *Ledger) Open() (open []*Sent) {
	for _, s := range l.Sent {
		if !s.Back && !l.Done[s.Chat] {
			open = append(open, s)
		}
	}
	return open
}

// Find returns the message with the id; nil for none.
func (l *Ledger) Find(id string) *Sent {
	for _, s := range l.Sent {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// Holds reports whether the chat is done, or the agent may have it.
func (l *Ledger) Holds(chat string) bool {
	return l.Done[chat] || slices.ContainsFunc(l.Sent, func(s *Sent) bool { return s.Chat == chat && !s.Back })
}

// Attempts returns how often the chat was put.
func (l *Ledger) Attempts(chat string) (n int) {
	for _, s := range l.Sent {
		if s.Chat == chat {
			n = max(n, s.Attempt+1)
		}
	}
	return n
}

// Judge returns the chats that the session's line with the number has. fresh: no record has it yet; the caller adds
// and writes one. A line that is judged again, also by a worker that has read the journal alone, has the candidates
// that it had the first time, and so the same chats.
func (l *Ledger) Judge(live *harness.Live, number int, line []byte, e session.Entry) (chats []string, fresh bool) {
	if chats, known := l.Lines[number]; known {
		return chats, false
	}
	var messages []harness.Message
	var of []string
	for _, s := range l.Sent {
		if s.Line > number || s.Back || s.Taken && s.TakenAt <= number {
			continue
		}
		m := s.Message
		switch {
		case m.Text != "":
		case s.Sum != "" && TextSum(e.Text) == s.Sum: // a runner without the command line finishes the run
			m.Text = e.Text
		default:
			m.Text = "\x00" // as no line has it
		}
		messages, of = append(messages, m), append(of, s.Chat)
	}
	for _, i := range live.Taken(line, e, messages) {
		if !slices.Contains(chats, of[i]) {
			chats = append(chats, of[i])
		}
	}
	return chats, len(chats) > 0
}

// TextSum is the Sum of a text that is not written down.
func TextSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Compact drops the messages that are taken in or refused, and returns the record that replaces all others. A
// text that must not be written stays out of it.
func (l *Ledger) Compact() Record {
	l.Sent = slices.DeleteFunc(l.Sent, func(s *Sent) bool { return l.Done[s.Chat] })
	s := l.state
	s.Sent = make([]*Sent, len(l.Sent))
	for i, sent := range l.Sent {
		c := *sent
		c.Images = make([]harness.Image, len(c.Images))
		if c.Prompt || c.Back {
			c.Text = ""
		}
		s.Sent[i] = &c
	}
	return Record{Op: OpState, State: &s}
}
