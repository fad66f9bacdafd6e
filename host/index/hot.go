package index

import (
	"sync"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
)

// Bounds of the states in memory.
const (
	mostHot      = 2000     // threads without a fold in progress
	mostHotState = 16 << 10 // bytes of the stored form; a larger state is read from the store each time
	mostInHand   = 1 << 20  // bytes of an append that are folded at once; a larger one is read from the log
)

// hot is the state of a thread that is appended to. The zero value is that of a thread whose state is in the store.
type hot struct {
	mu    sync.Mutex // guards the fields below; an append does not wait for it
	state *state     // nil where it is in the store
	row   row        // of the state. Its place is not kept up to date
	upto  uint64     // offset behind all records so far. The row's is behind the last one that is not passing
	fork  bool       // the stream is a fork: its offsets are not those of its appends
}

// add adds the record that follows, and reports whether it is one that the row is behind.
func (h *hot) add(r engine.Record) bool {
	if h.row.offset > 0 && passing(r) {
		return false
	}
	h.state.add(r)
	return true
}

// read adds the records that follow, which were read from the log.
func (h *hot) read(records []engine.Record) {
	for i, r := range records {
		h.upto = r.Seq
		if !h.add(r) {
			continue
		}
		for i+1 < len(records) && records[i+1].Seq == r.Seq { // records of one append can share their offset
			i++
		}
		h.row.offset, h.row.last = r.Seq, hashOf(records[i])
	}
}

// take folds an append, unless it does not follow the records in the state: then Sync reads it from the log.
func (h *hot) take(c log.Change) {
	size := 0
	for i := range c.Records {
		size += len(c.Records[i].Data)
	}
	if size > mostInHand || !h.mu.TryLock() { // it is being folded
		return
	}
	defer h.mu.Unlock()
	if h.state == nil || h.fork || h.upto != c.Before {
		return
	}
	h.upto = c.After
	for _, r := range c.Records {
		if h.add(r) {
			h.row.offset, h.row.last = c.After, hashOf(c.Records[len(c.Records)-1])
		}
	}
}
