package dispatch

import (
	"time"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/thread"
)

// For tests that write and read rounds.
var (
	CallsOf   = callsOf
	Foreign   = foreign
	MessageOf = messageOf
	TextOf    = textOf
)

// Context returns what a model is asked about entries.
func Context(entries []thread.Entry, j *Journal, r Room, tools []model.Tool, budget int) model.Request {
	n, _ := read(entries, r)
	return request(n.all(), j, r, tools, budget)
}

// Workers returns how many workers a host has now.
func Workers(h *Host) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.workers)
}

// read returns what a host keeps of entries. Only chats of the last hour are triggers.
func read(entries []thread.Entry, r Room) (*notes, *State) {
	n, s := newNotes(r.human), NewState("t1", entries[len(entries)-1].Received().Add(-time.Hour))
	for _, e := range entries {
		s.Add(e)
		n.add(e, s)
	}
	return n, s
}

// NotesSize returns how many bytes a host keeps of entries.
func NotesSize(entries []thread.Entry) (size int) {
	n, _ := read(entries, Room{})
	for _, x := range n.list {
		size += x.size()
	}
	return size
}

// Asked returns what the model of an open reaction is asked.
func Asked(entries []thread.Entry, reaction string, r Room) model.Request {
	n, s := read(entries, r)
	j := s.Reaction(reaction)
	return request(n.all().of(j), j, r, nil, contextTokens)
}
