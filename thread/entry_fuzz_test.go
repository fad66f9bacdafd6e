package thread

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is read the short way is what the JSON library reads.
func FuzzParsePlain(f *testing.F) {
	for _, s := range []string{
		`{"id":"a","ts":"2026-06-01T12:00:00.000Z","payload":{"type":"chat","text":"x"}}`,
		` { "id" : "a\u0041" , "ts":"x", "authorId":"\ud800", "at":"y", "payload" : {"type":"pi.x", "a":[1,{}]} } `,
		`{"id":1}`, `{"ID":"a"}`, `{"id":"a","id":"b"}`, `{"id":null}`, `{"payload":null}`, `[]`, `7`, `{}`, `{"other":1}`, "{\"id\":\"\xff\"}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return
		}
		got, ok := parsePlain(raw)
		if !ok {
			return
		}
		var want Entry
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("%q is read, and is not to be: %v", raw, err)
		}
		want.At = "" // whoever settles the entry drops it
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q:\n%s", raw, diff)
		}
	})
}
