package mirror_test

import (
	"strings"
	"testing"

	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
)

// A line of a live run that has chats on record repeats them, whatever kind of line it is. It is no second chat, and
// the same on a second mirroring, by an Encoder that has only skipped the lines before it, too.
func TestDelivered(t *testing.T) {
	lines := []string{
		header,
		message("u1", "", `{"role":"user","content":"one"}`),
		message("a1", "u1", `{"role":"assistant","content":[],"stopReason":"stop"}`),
		`{"type":"attachment","id":"q1","parentId":"a1","timestamp":"2026-01-01T00:00:02.000Z","text":"two, three"}`,
		message("u2", "q1", `{"role":"user","content":"nobody has posted this"}`),
	}
	chats := map[int][]string{0: {"never"}, 1: {"r1.prompt"}, 3: {"b", "c"}}
	newEncoder := func() *mirror.Encoder {
		e := newEncoder()
		e.RunFrom = 1
		e.Delivered = func(l session.Line, _ session.Entry) []string { return chats[l.Start.Index] }
		return e
	}
	entries := encode(newEncoder(), lines...)
	for i, want := range []string{
		`"kind":"session"`, `"type":"pi.session","kind":"prompt","chat":"r1.prompt"`, `"type":"pi.assistant"`,
		`"type":"pi.session","kind":"prompt","chats":["b","c"]`, `"type":"chat"`,
	} {
		if got := string(entries[i].Payload); !strings.Contains(got, want) || strings.Contains(got, "never") {
			t.Errorf("line %d: %s, want %s", i, got, want)
		}
	}
	for n := range lines {
		e := newEncoder()
		for i, line := range lines {
			l := session.Line{Start: session.Position{Index: i}, Data: []byte(line)}
			if i < n {
				e.Skip(l)
			} else if again, _ := e.Encode(l); string(again.Payload) != string(entries[i].Payload) {
				t.Errorf("line %d behind %d skipped: %s", i, n, again.Payload)
			}
		}
	}
}
