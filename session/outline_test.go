package session_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	recordings "arbe.0sk.ar/runner/internal/test/recorded"
	"arbe.0sk.ar/runner/session"
)

// Outline returns of each recorded line what Decode returns, but for what it may leave out. So does LineOutline for a
// line that is made of its message.
func TestOutline(t *testing.T) {
	for name, content := range recordings.Sessions(t, "../testdata") {
		d := recordings.Dialect(t, name)
		for line := range bytes.Lines(content) {
			if line = bytes.TrimSpace(line); json.Valid(line) {
				checkOutline(t, d, line)
			}
		}
	}
	for _, line := range []string{
		`[]`, `1`, `null`, `{}`, ` {"type":"session","id":"s"} `, `{"type":"session"}`,
		`{"type":"message","id":"a","message":"none"}`, `{"type":"message","id":"a","message":{"role":"user"}}`,
		`{"type":"message","id":"\ud800","message":{"role":"assistant","content":[{"type":"toolCall","id":"\u0041"}]}}`,
	} {
		for _, d := range session.Harnesses() {
			checkOutline(t, d, []byte(line))
		}
	}
}

func checkOutline(t *testing.T, d session.Dialect, line []byte) {
	t.Helper()
	// outline returns the members of an entry that an Outline has.
	outline := func(e session.Entry) session.Entry {
		return session.Entry{
			Kind: e.Kind, Known: e.Known, ID: e.ID, Parent: e.Parent, SessionID: e.SessionID, Cwd: e.Cwd, Old: e.Old,
			Began: e.Began, Next: e.Next, Calls: e.Calls, ToolCallID: e.ToolCallID,
		}
	}
	e := d.Decode(line)
	if diff := cmp.Diff(outline(e), outline(d.Outline(line))); diff != "" {
		t.Errorf("%.200s\n-decoded +outline:\n%s", line, diff)
	}
	if d.Line == nil || e.Message == nil {
		return
	}
	made := d.Line(e.ID, e.Parent, e.Time, e.Message)
	if diff := cmp.Diff(outline(d.Outline(made)), outline(d.LineOutline(e.ID, e.Parent, e.Message))); diff != "" {
		t.Errorf("%.200s\n-outline +of the message:\n%s", made, diff)
	}
}
