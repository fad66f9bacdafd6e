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
	fork  bool       // the stream is a fork: its offsets are not those of its appends
}

// add adds the records that follow, of which the last one is at this offset.
func (h *hot) add(records []engine.Record, offset uint64) {
	for _, r := range records {
		h.state.add(r)
	}
	h.row.offset, h.row.last = offset, hashOf(records[len(records)-1])
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
	if h.state != nil && !h.fork && h.row.offset == c.Before {
		h.add(c.Records, c.After)
	}
}
