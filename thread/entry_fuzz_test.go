package thread

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What parseExact reads, the JSON library reads the same.
func FuzzParseExact(f *testing.F) {
	for _, s := range []string{
		`{"id":"a","ts":"2026-06-01T12:00:00.000Z","payload":{"type":"chat","text":"x"}}`,
		` { "id" : "a\u0041" , "ts":"x", "authorId":"\ud800", "at":"y", "payload" : {"type":"pi.x", "a":[1,{}]} } `,
		`{"id":1}`, `{"ID":"a"}`, `{"id":"a","id":"b"}`, `{"id":null}`, `{"payload":null}`,
		`[]`, `7`, `{}`, `{"other":1}`, "{\"id\":\"\xff\"}", `{"authorId":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if CheckJSON(raw, MaxDepth) != nil {
			return
		}
		got, err := parseExact(raw)
		if err != nil {
			return
		}
		var want Entry
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("%q is read, and is not to be: %v", raw, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q:\n%s", raw, diff)
		}
	})
}

// What Scan reads of a signal or a chat, the JSON library reads the same, whose matching of names is loose: the
// fields are not ambiguous.
func FuzzScan(f *testing.F) {
	for _, s := range []string{
		`{"type":"signal.thread.status_changed","runId":"a","harness":"pi","status":"running"}`,
		`{"type":"chat","RunId":"b"}`,
		`{"type":"signal.a.b","runId":"a","run\u0049d":"b"}`, `{"type":"signal.a.b","\u017ftatus":"failed"}`,
		`{"type":"chat","runId":null,"line":{"type":1}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if CheckJSON(payload, MaxDepth) != nil {
			return
		}
		got, err := Scan(payload)
		if err != nil || got.Type != TypeChat && !got.Signal() {
			return
		}
		var p struct {
			Signal
			Status   string          `json:"status"`
			Reaction json.RawMessage `json:"reaction"`
		}
		if err := json.Unmarshal(payload, &p); err != nil {
			t.Fatalf("%q is scanned, and can't be read: %v", payload, err)
		}
		if want := (Fields{p.Type, p.RunID, p.Harness, p.Status, p.Reaction != nil}); got != want {
			t.Errorf("%q: scanned %+v, read %+v", payload, got, want)
		}
	})
}
