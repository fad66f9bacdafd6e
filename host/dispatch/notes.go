package dispatch

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Bounds of what a host keeps of a thread for models, in bytes. The smaller one is more than a request has.
const (
	mostNotes  = 512 << 10 // then the oldest notes are left out
	leastNotes = mostNotes / 2
)

// mostOpen bounds the commands and the runs of a thread that are followed at the same time.
const mostOpen = 64

// notes are the part of a thread that models can be shown: its newest entries, their texts cut, and a count of the
// older ones. The first chat of a human, what a bot has not answered yet, and open reactions stay.
//
// It follows from the entries alone: hosts that have read the same have the same notes, wherever they began to work.
// Where much has come since a reaction's first claim, a later holder may have left out more than the first one had.
type notes struct {
	human func(author string) bool
	list  []note
	size  int
	left  left

	trimAt   int // size from which on something may be left out; at least mostNotes
	entries  int
	first    bool // the first chat of a human is there
	runs     map[string]*ranRun
	running  *ranRun
	commands map[string]*command
}

// note is an entry, or several: a run, a command.
type note struct {
	thread.Entry
	typ      string
	order    int    // place in the log
	reaction string // of a round or a result
	first    bool   // chat of a human
	run      *ranRun
	command  *command
}

// left counts notes that were left out.
type left struct {
	entries  int
	from, to time.Time
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

func newNotes(human func(author string) bool) *notes {
	return &notes{human: human, runs: map[string]*ranRun{}, commands: map[string]*command{}}
}

// add adds the thread's next entry. state has it already.
func (n *notes) add(e thread.Entry, s *State) {
	n.entries++
	f, err := thread.Scan(e.Payload)
	if err != nil {
		return
	}
	switch x := (note{Entry: e, typ: f.Type, order: n.entries}); f.Type {
	case thread.TypeChat:
		add(e, func(_ thread.Entry, p noted) { n.chat(x, p) })
	case thread.TypeChildFinished:
		n.push(x)
	case thread.TypeExecStarted:
		add(e, n.started)
	case thread.TypeExecOutput:
		add(e, n.output)
	case thread.TypeExecFinished:
		add(e, func(_ thread.Entry, p thread.ExecFinished) { n.executed(x, p) })
	case thread.TypeStatus:
		add(e, func(_ thread.Entry, p thread.StatusChanged) { n.status(x, p) })
	default:
		add(e, func(_ thread.Entry, p noted) { n.line(x, p, s) })
	}
	n.trim(s)
}

// noted has the members of a payload that count for notes.
type noted struct {
	Text     string
	RunID    string
	Quiet    bool
	Reaction thread.InReaction
	Message  json.RawMessage
	Session  json.RawMessage
}

func (n *notes) push(x note) {
	n.list = append(n.list, x)
	n.size += x.size()
}

// size estimates the memory of a note.
func (x note) size() int {
	const rest = 300
	size := rest + len(x.ID) + len(x.Payload)
	if x.run != nil {
		size += len(x.run.last)
	}
	if x.command != nil {
		size += len(x.command.text) + len(x.command.output)
	}
	return size
}

func (n *notes) chat(x note, p noted) {
	if p.RunID != "" || p.Session != nil || p.Quiet {
		return
	}
	if len(x.Payload) > 2*mostChat {
		x.Payload = thread.Marshal(thread.Chat{Type: thread.TypeChat, Text: cut(p.Text, mostChat)})
	}
	if !n.first && n.human(x.AuthorID) {
		n.first, x.first = true, true
	}
	n.push(x)
}

func (n *notes) started(e thread.Entry, p thread.ExecStarted) {
	if len(n.commands) < mostOpen && !thread.IsCallKey(p.ExecID) { // a bot's is a result of its reaction
		n.commands[p.ExecID] = &command{author: e.AuthorID, text: cut(p.Command, mostReply)}
	}
}

func (n *notes) output(_ thread.Entry, p thread.ExecOutput) {
	if c := n.commands[p.ExecID]; c != nil {
		c.output += p.Text
		c.output = strings.Clone(c.output[max(0, len(c.output)-mostOutput):])
	}
}

func (n *notes) executed(x note, p thread.ExecFinished) {
	if c := n.commands[p.ExecID]; c != nil {
		delete(n.commands, p.ExecID)
		x.command = c
		n.push(x)
	}
}

func (n *notes) status(x note, p thread.StatusChanged) {
	if p.Status == thread.StatusRunning {
		if len(n.runs) < mostOpen {
			n.running = &ranRun{harness: p.Harness, author: x.AuthorID, began: x.Received()}
			n.runs[p.RunID] = n.running
		}
		return
	}
	r := n.runs[p.RunID]
	if r == nil {
		return
	}
	delete(n.runs, p.RunID)
	if n.running == r {
		n.running = nil
	}
	x.run = r
	n.push(x)
}

// line adds a round or a result of a bot, or counts a line of a run. What comes behind the end of its reaction, from a
// host that was frozen, is no part of it.
func (n *notes) line(x note, p noted, s *State) {
	switch {
	case p.Session != nil && n.running != nil:
		switch {
		case strings.HasSuffix(x.typ, "."+thread.KindToolResult):
			n.running.calls++
		case strings.HasSuffix(x.typ, "."+thread.KindAssistant):
			if text := textOf(p.Message); text != "" {
				n.running.last = cut(text, mostReply)
			}
		}
	case s.open[p.Reaction.ID] != nil && (x.typ == thread.TypeRound || x.typ == thread.TypeResult):
		x.reaction = p.Reaction.ID
		n.push(x)
	}
}

// trim leaves out the oldest notes where there are too many.
func (n *notes) trim(s *State) {
	if n.size <= max(mostNotes, n.trimAt) {
		return
	}
	needed := s.needed()
	var kept []note // a new list: models may be shown the old one
	for _, x := range n.list {
		if n.size <= leastNotes || x.first || needed[x.ID] || s.open[x.reaction] != nil {
			kept = append(kept, x)
			continue
		}
		if n.left.entries == 0 {
			n.left.from = x.Received()
		}
		n.left.entries++
		n.left.to = x.Received()
		n.size -= x.size()
	}
	n.list, n.trimAt = kept, 2*n.size // of many that stay, not each one is a reason to look at all
}

// needed returns the entries that bots have not answered yet.
func (s *State) needed() map[string]bool {
	ids := map[string]bool{}
	for _, t := range s.undecided {
		ids[t.ID] = true
	}
	for _, w := range s.waiting {
		ids[w.Trigger] = true
	}
	for _, j := range s.open {
		for _, id := range j.Chats {
			ids[id] = true
		}
	}
	return ids
}

// all returns the notes as they are now. Later ones do not change it.
func (n *notes) all() notes { return notes{list: n.list[:len(n.list):len(n.list)], left: n.left} }

// of returns the notes that a reaction's model is shown: those before its first claim, and its own.
func (n notes) of(j *Journal) notes {
	var some []note
	for _, x := range n.list {
		if j.order == 0 || x.order < j.order || x.reaction == j.ID {
			some = append(some, x)
		}
	}
	n.list = some
	return n
}

// newest returns the newest notes, answers of others to the same triggers among them, and the triggers.
func (n notes) newest(most int, j *Journal) (some notes) {
	old := max(0, len(n.list)-most)
	for i, x := range n.list {
		if i >= old || slices.Contains(j.Chats, x.ID) {
			some.list = append(some.list, x)
		}
	}
	return some
}
