package log_test

import (
	"errors"
	"testing"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/session"
)

// A writer that no token binds posts what only hosts post. None posts the lines of a harness that its list lacks.
func TestUnboundWriter(t *testing.T) {
	body := func(payload string) []byte {
		return []byte(`{"id":"e1","ts":"2026-01-01T00:00:00Z","payload":` + payload + `}`)
	}
	const (
		hosts    = `{"type":"chat","text":"hi","via":"bot"}`
		unlisted = `{"type":"abacus.assistant"}`
	)
	for _, tt := range []struct {
		name    string
		w       log.Writer
		payload string
		refused bool
	}{
		{"a host", log.Writer{}, hosts, false},
		{"a run", log.Writer{Run: "r1"}, hosts, true},
		{"an author", log.Writer{Author: "ada"}, hosts, true},
		{"a host, unlisted", log.Writer{}, unlisted, true},
		{"a run, unlisted", log.Writer{Run: "r1"}, unlisted, true},
		{"listed", log.Writer{Harnesses: session.List{{Prefix: "abacus"}}}, unlisted, false},
	} {
		_, err := log.ParseEntries(body(tt.payload), tt.w)
		if bad := new(log.EntriesError); errors.As(err, &bad) != tt.refused {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
}
