package jsonscan_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// FuzzCompact: the result is that of json.Compact for valid JSON.
func FuzzCompact(f *testing.F) {
	for _, s := range []string{
		`{}`, " {\"a b\" :\t[1 , \"x\\\" y\" ]\r\n}\n", `"a  b"`, ` 1 `, `[ ]`,
		`{"a":{"b": null}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			return // Compact takes valid JSON
		}
		var want bytes.Buffer
		if err := json.Compact(&want, b); err != nil {
			t.Fatal(err)
		}
		if got := jsonscan.Compact(b); !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%q: got %q, want %q", b, got, want.Bytes())
		}
	})
}

// FuzzFind: it finds what Members calls f with first.
func FuzzFind(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, ` { "b" : {"a":2} , "\u0061": "x" , "a":3}`, `[1]`, `{"a"`, `{"a":`, `{"`, `{"a\"":1,"a":[`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		i := jsonscan.Find(b, "a")
		if !json.Valid(b) {
			return // it does not panic
		}
		var want []byte
		found := false
		jsonscan.Members(b, func(key, v []byte) {
			if !found && string(key) == "a" {
				want, found = v, true
			}
		})
		if found != (i >= 0) || found && !bytes.Equal(b[i:jsonscan.Skip(b, i)], want) {
			t.Errorf("%q: at %d, want %q", b, i, want)
		}
	})
}

// FuzzMembers: an object is whole, none of its prefixes is, and bytes that are no JSON do no harm.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, `{ "a" : [{"b":"}"}] , "\u0061": "x\"" }`, ` {}`, `{} `, `[1]`, `{"`, `{"a`, `{"a"`, `{"a":`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole := func(b []byte) bool {
			_, whole := jsonscan.Members(b, func(_, _ []byte) {})
			return whole
		}
		got := whole(b)
		if !json.Valid(b) {
			return
		}
		if want := b[0] == '{' && b[len(b)-1] == '}'; got != want {
			t.Errorf("%q: got %v, want %v", b, got, want)
		}
		for i := range b {
			if got && whole(b[:i]) {
				t.Errorf("%q of %q is whole", b[:i], b)
			}
		}
	})
}
