package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/session"
)

// Live describes how a running agent is spoken to: lines of JSON on its stdin, answered by lines on its stdout. It does
// no I/O. Its functions are pure; Read changes the Talk that it gets, and nothing else.
//
// An agent is spoken to in this order. Start it by Command. Read its stdout from the start and give each line to Read.
// Write what Open returns. While Ready, write Put for one Message at a time: it is accepted (Event.Accepted), and later
// taken in, which only the session has on record (Taken). A message that is accepted but not taken in is in the agent's
// memory, and is lost with it.
type Live struct {
	// Least is the oldest version that can be spoken to, and was tried.
	Least string
	// Stop is Spec.Stop for a live agent.
	Stop syscall.Signal
	// Command returns the command for a live run. A Task's Prompt is no part of it: it is the first Message.
	Command func(Box, Task) Invocation
	// Open returns the lines that open the session, as far as they are still to be written: all of them in state
	// Talk{}, none once the agent has answered. dir is the agent's working directory. The lines may be written again
	// after a crash. nil: the agent takes messages at once.
	Open func(t Talk, task Task, dir string) [][]byte
	// Put returns the line that hands over a message. A busy agent takes it in as soon as it can. An agent that is to
	// get it after its turn gets it when it is idle.
	Put func(t Talk, m Message) []byte
	// Interrupt returns the lines that end the running turn, under an id like a Message's. Event.Answered has the id
	// once the agent has read them; the agent is Ready for the next message once the turn has ended. What it had
	// accepted is then Dropped (codex, claude-code), or taken in: by the ending turn or behind the next message (pi).
	// nil: no turn is running.
	Interrupt func(t Talk, id string) [][]byte
	// Barrier returns the line of a question without effect, under an id like a Message's. Its answer proves that the
	// agent has read all lines before it, and has answered them, if it was Ready then. Ask again otherwise.
	Barrier func(t Talk, id string) []byte
	// Rounds is how many barriers are needed for the proof, each written after the answer to the one before. pi 0.87.1
	// reads a message and answers it later: a barrier that it reads with the message is answered first.
	Rounds int
	// Holds are the waits in which the agent is not given a message.
	Holds []Wait
	// Handles: an accepted message may leave no line in the session because an extension of the agent has handled it.
	// If the agent is idle behind a barrier, has accepted a message and has no record of it, the message is handled.
	// Without Handles a message that is then still Queued is lost, and may be put again, with another id.
	Handles bool
	// MaxText is the limit on a message's text in characters; 0: none is known.
	MaxText int
	// Apart reports whether the agent takes in a message with this text only after its turn, and one that it gets later
	// before it. Give it the message when it is idle, and the next one once that is taken in. nil: none is so.
	Apart func(text string) bool

	// Answer is Spec.Answer for a live agent.
	Answer func(line []byte) (text string, final bool)

	read  func(t *Talk, line []byte) Event
	taken func(line []byte, e session.Entry, sent []Message) []int
}

// Message is a chat for an agent.
type Message struct {
	// ID is a UUID that no other message of the session has. claude-code ignores a message with an id that it has had,
	// also if it was cancelled: a message that is put again has another id. See MessageID.
	ID     string
	Text   string
	Images []Image
}

// Image is a picture in a message.
type Image struct {
	MimeType string
	Data     string // base64
}

// MessageID is the Message.ID of a chat, a version 5 UUID. attempt counts how often the chat was put before.
func MessageID(chat string, attempt int) string {
	if attempt > 0 {
		chat += "\n" + strconv.Itoa(attempt)
	}
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("arbe:"+chat)).String()
}

// Talk is the state of a running agent, computed from its stdout alone: the same lines give the same state, so a
// process that takes over reads them again. The zero value is an agent that has printed nothing. A copy is independent.
type Talk struct {
	// Session is the session's id, and its path if the agent prints that; empty until known.
	Session Session `json:"session"`
	// Opened: the agent has opened its session. It stays false for an agent without Live.Open.
	Opened bool `json:"opened"`
	// Busy: a turn is running. It may begin a moment after the message for it is accepted. An idle agent may also begin
	// one unasked: claude-code does when background work ends.
	Busy bool `json:"busy"`
	// Ending: an interrupt was answered and its turn has not ended yet.
	Ending bool `json:"ending"`
	// Wait is the reason for which a running turn pauses.
	Wait Wait `json:"wait"`

	// Initialized: codex has answered initialize.
	Initialized bool `json:"initialized"`
	// Turn is the id of codex's running turn.
	Turn string `json:"turn"`
	// Queue are the messages that codex or claude-code has accepted and not taken in, as far as stdout has it.
	Queue []Waiting `json:"queue"`
	// Last is pi's report on its last reply.
	Last Report `json:"last"`
}

// Waiting is a message in the agent's memory: its id, and the turn of codex that is to take it in.
type Waiting [2]string

func (w Waiting) id() string   { return w[0] }
func (w Waiting) turn() string { return w[1] }

// Wait is a reason for which a turn pauses.
type Wait string

// Waits.
const (
	NoWait     Wait = ""
	Retry      Wait = "retry"      // a failed request is tried again later
	Compaction Wait = "compaction" // the conversation is summarized
)

// Event is the information in one line of a live agent's stdout. Most lines have none.
type Event struct {
	// Report is the line's report on a turn: Mark is Begin, or End, Failure or Abort.
	Report
	// Idle: the agent has become idle.
	Idle bool
	// Accepted is the id of a message that the agent has put into its queue or its turn; possibly in several lines.
	Accepted string
	// Refused is the id of a message that the agent does not take, for Reason. Again: the reason passes; the message
	// may be put again, with another id, once the agent is Ready.
	Refused string
	Reason  string
	Again   bool
	// Answered is the id of an interrupt or a barrier that the agent has read, whatever it answered.
	Answered string
	// Dropped are ids of messages that were accepted and will never be taken in: they may be put again.
	Dropped []string
	// Request is a question that the agent waits for, possibly without limit; nil: none.
	Request *Request
	// OpenError is why the agent could not open its session; it will take no message.
	OpenError string
}

// Request is a question of the agent to its user. Nobody is there: the harness answers by a fixed policy. What would
// need a person is cancelled, what asks for permission is allowed, as a print run allows it.
type Request struct {
	ID       string // the agent's own; unique in a run
	Kind     string // the agent's own name of the question
	Text     string // for a person; may be empty
	Decision string // "allowed", "cancelled" or "unsupported"
	Reply    []byte // the line to write; a second one with this ID is ignored
}

// Refuses returns why an agent of this version can't be spoken to; nil if it can. A version that is not known passes.
func (l *Live) Refuses(s Spec, version string) error {
	if !older(version, l.Least) {
		return nil
	}
	return fmt.Errorf("%s %s can't be used live: it needs %s or newer; install it with: %s",
		s.Name, version, l.Least, s.ForLive().Install())
}

// Unfit returns why no agent of this kind takes a message; "" if it may.
func (l *Live) Unfit(m Message) string {
	if l.MaxText == 0 || len(m.Text) <= l.MaxText {
		return ""
	}
	if n := utf8.RuneCountInString(m.Text); n > l.MaxText {
		return fmt.Sprintf("%d characters are more than the %d that the agent takes", n, l.MaxText)
	}
	return ""
}

// Ready reports whether a message may be written now. A message for after the turn waits until the agent is not Busy,
// too.
func (l *Live) Ready(t Talk) bool {
	return (l.Open == nil || t.Opened) && !t.Ending && !slices.Contains(l.Holds, t.Wait)
}

// Read takes the next line of stdout into the state and returns what it means. A line that is no JSON means nothing.
func (l *Live) Read(t *Talk, line []byte) Event {
	was := t.Busy
	ev := l.read(t, bytes.TrimSpace(line))
	ev.Idle = was && !t.Busy
	if ev.Idle {
		t.Ending, t.Wait = false, NoWait
	}
	return ev
}

// Taken returns the indexes of the messages in sent that a line of the session records as taken in; nil for none. sent
// are the messages that were written and not taken in yet, in the order of writing. e is the line, decoded. What the
// harness injects is never one. claude-code may put several queued messages into one line.
func (l *Live) Taken(line []byte, e session.Entry, sent []Message) []int {
	if e.Side || len(sent) == 0 {
		return nil
	}
	return l.taken(line, e, sent)
}

// byText returns the first message whose text is a text of the line's message; nil for none.
func byText(e session.Entry, sent []Message) []int {
	texts := textsOf(e.Message)
	for i, m := range sent {
		if slices.Contains(texts, m.Text) {
			return []int{i}
		}
	}
	return nil
}

// textsOf returns the texts in a message: its content if that is a string, or its text blocks.
func textsOf(message json.RawMessage) (texts []string) {
	var m struct{ Content json.RawMessage }
	decode(message, &m)
	var whole string
	if json.Unmarshal(m.Content, &whole) == nil {
		return []string{whole}
	}
	var blocks []struct{ Type, Text string }
	_ = json.Unmarshal(m.Content, &blocks) // of another type: no texts
	for _, b := range blocks {
		if b.Type == "text" {
			texts = append(texts, b.Text)
		}
	}
	return texts
}

// Queued reports whether the agent has accepted a message and, as far as its stdout has it, not taken it in. The line
// in the session may come some milliseconds after stdout has it. It is always false for pi, which does not print it.
func (t Talk) Queued(id string) bool {
	return slices.ContainsFunc(t.Queue, func(w Waiting) bool { return w.id() == id })
}

// enqueue notes an accepted message.
func (t *Talk) enqueue(id, turn string) {
	if !t.Queued(id) {
		t.Queue = append(slices.Clip(t.Queue), Waiting{id, turn})
	}
}

// dequeue removes the accepted messages that match and returns their ids.
func (t *Talk) dequeue(match func(Waiting) bool) (ids []string) {
	var left []Waiting
	for _, w := range t.Queue {
		if match(w) {
			ids = append(ids, w.id())
		} else {
			left = append(left, w)
		}
	}
	t.Queue = left
	return ids
}

// older reports whether version a is known to be before b, by its numbers. One that has none, or zeros alone, is no
// release.
func older(a, b string) bool {
	numbers := func(v string) (n []int) {
		v, _, _ = strings.Cut(v, "-")
		for part := range strings.SplitSeq(v, ".") {
			i, err := strconv.Atoi(part)
			if err != nil {
				return nil
			}
			n = append(n, i)
		}
		return n
	}
	n := numbers(a)
	return n != nil && slices.Max(n) > 0 && slices.Compare(n, numbers(b)) < 0
}

// decode parses a JSON object into v as far as the types fit: an agent may use a name for something else. It returns
// false for what is no object.
func decode(line []byte, v any) bool {
	var mismatch *json.UnmarshalTypeError
	err := json.Unmarshal(line, v)
	return len(line) > 0 && line[0] == '{' && (err == nil || errors.As(err, &mismatch))
}

// object is a JSON object to write.
type object = map[string]any

// encode returns v as one line, without its end. The text of a message may contain anything: JSON escapes line breaks,
// U+2028 included.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own shapes marshal
	}
	return b
}
