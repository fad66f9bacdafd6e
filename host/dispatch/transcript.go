package dispatch

import (
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Transcript renders a thread as models are shown what others wrote on it: for a bot that reads it in its own time, and
// not as what it answers. The thread's own bots have their replies in it, without calls. Make it with NewTranscript,
// and Add the entries in their order, from the first one on, with or without deltas.
type Transcript struct {
	state *State
	notes *notes
	room  Room
}

// NewTranscript returns the transcript of an empty thread of a room's house.
func NewTranscript(r Room) *Transcript {
	nothing := time.Unix(1<<40, 0) // is a trigger
	return &Transcript{state: NewState("", nothing), notes: newNotes(r.human), room: r}
}

// Add adds the thread's next entry, and returns the texts that end with it: none for most.
func (t *Transcript) Add(e thread.Entry) (texts []string) {
	t.state.Add(e)
	t.notes.add(e, t.state)
	b := builder{Room: t.room, journal: new(Journal)}
	for _, x := range t.notes.list {
		b.add(x)
	}
	t.notes.list, t.notes.size = nil, 0
	for _, x := range b.blocks {
		for _, m := range x.messages {
			texts = append(texts, strings.ToValidUTF8(m.Parts[0].Text, ""))
		}
	}
	return texts
}
