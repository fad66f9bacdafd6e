package index

import (
	"encoding/json"
	"os"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// State is a thread's state, for tests.
type State struct{ s state }

// Add adds a record.
func (s *State) Add(r engine.Record) { s.s.add(r) }

// Summary returns the summary of the records so far.
func (s *State) Summary(id string) thread.Summary { return s.s.summary(id, "") }

// MarshalJSON returns the stored form.
func (s *State) MarshalJSON() ([]byte, error) { return thread.Marshal(s.s), nil }

// UnmarshalState reads the stored form.
func UnmarshalState(b []byte) (*State, error) {
	s := &State{}
	return s, json.Unmarshal(b, &s.s)
}

// Title is title.
var Title = title

// ReadOnly makes the index's file refuse writes, until the returned func is called.
func (x *Index) ReadOnly() (undo func(), err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	was := x.store.file
	file, err := os.Open(was.Name())
	if err != nil {
		return nil, err
	}
	x.store.file = file
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.store.file = was
		_ = file.Close() // it was only read
	}, nil
}

// Idle reports whether all changes are folded.
func (x *Index) Idle() bool {
	_, idle := x.idle()
	return idle
}
