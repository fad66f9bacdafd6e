package index

import (
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
func (s *State) MarshalJSON() ([]byte, error) { return s.s.encode(), nil }

// UnmarshalState reads the stored form.
func UnmarshalState(b []byte) (*State, error) {
	s := &State{}
	return s, unmarshal(b, &s.s)
}

// Title is title.
var Title = title
