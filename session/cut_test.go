package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// reference cuts the strings of a line that is held whole.
func reference(line []byte, most int) []byte {
	var w Rewriter
	return w.Rewrite(line, func(s []byte) []byte {
		if len(s) <= most {
			return nil
		}
		head := most
		for head > 0 && !utf8.RuneStart(s[head]) {
			head--
		}
		sum := sha256.Sum256(s)
		return append(s[:head:head], CutMark(int64(len(s)), sum[:])...)
	})
}

// FuzzCutLine: a line that is cut as it is read is the line that is cut whole, wherever the reads end.
func FuzzCutLine(f *testing.F) {
	for _, s := range []string{
		`{"type":"message","id":"a","text":"0123456789 0123456789 0123456789"}`,
		`{"a":"\\\\\\\"quoted\\\" and more of it to be cut"}`,
		`{"a":"\ud83d\ude00\ud83d\ude00\ud83d\ude00\ud83d\ude00\ud83d\ude00\ud83d\ude00\ud83d\ude00"}`,
		`{"a":"äöüäöüäöüäöüäöüäöüäöüäöü","b":[1, "x", {"c":"\u0000\n"}]}`,
		`"\\\ud83d\\\\ud83d\ude00x\\ud83d\ude00"`, `["\ude00\ud83d\ud83d\ude00 lone ones, some of them \ud83d"]`,
	} {
		f.Add([]byte(s), uint8(40), uint8(9))
	}
	f.Fuzz(func(t *testing.T, line []byte, window, most uint8) {
		if !json.Valid(line) || !utf8.Valid(line) {
			return // no line of a session
		}
		c := cutter{most: int(most)}
		if err := c.read(bytes.NewReader(line), make([]byte, 32+int(window))); err != nil {
			t.Fatal(err)
		}
		// Keys are cut, too, which Rewrite leaves alone.
		if a, b := values(t, c.out), values(t, reference(unstructured(line), int(most))); a != b {
			t.Errorf("%q, %d:\ngot  %s\nwant %s", line, most, a, b)
		}
	})
}

// unstructured is a line whose strings may all be rewritten: inside "data" no member is structural.
func unstructured(line []byte) []byte {
	return append(append([]byte(`{"data":`), line...), '}')
}

// values are the strings and the rest of a value, without its keys, in short.
func values(t *testing.T, line []byte) string {
	t.Helper()
	var v any
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	if m, is := v.(map[string]any); is && len(m) == 1 && m["data"] != nil {
		v = m["data"]
	}
	var all []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if len(v) == 1 { // more have no order without their keys
				for _, w := range v {
					walk(w)
				}
			}
		case []any:
			for _, w := range v {
				walk(w)
			}
		default:
			b, _ := json.Marshal(v)
			all = append(all, string(b))
		}
	}
	walk(v)
	return strings.Join(all, " ")
}

func TestUncut(t *testing.T) {
	sum := sha256.Sum256([]byte("x"))
	mark := CutMark(12345, sum[:])
	for _, tt := range []struct{ s, head, mark string }{
		{"abc" + mark, "abc", mark},
		{mark, "", mark},
		{"abc", "abc", ""},
		{"abc]", "abc]", ""},
		{"[cut: x bytes, sha256 y]", "[cut: x bytes, sha256 y]", ""},
		{mark + "[cut: ]", mark + "[cut: ]", ""},
		{"", "", ""},
	} {
		if head, got := Uncut([]byte(tt.s)); string(head) != tt.head || string(got) != tt.mark {
			t.Errorf("%q: got %q and %q", tt.s, head, got)
		}
	}
}
