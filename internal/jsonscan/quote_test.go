package jsonscan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// Whatever the bytes are, Quote makes a JSON string of them that reads as the one of encoding/json.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{
		"", "plain", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "<a href=\"x\">&amp;", "caf\xe9", "\xff\xfe",
		"é€😀\u2028\u2029\ufffd",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var want, got string
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		quoted := jsonscan.QuoteString(nil, s)
		if err := json.Unmarshal(quoted, &got); err != nil || got != want {
			t.Errorf("%q: %s reads as %q, %v", s, quoted, got, err)
		}
		if strings.ContainsAny(string(quoted), "\u2028\u2029") {
			t.Errorf("%q: a line separator stands bare", s)
		}
		if b := jsonscan.Quote([]byte("x"), []byte(s)); string(b[1:]) != string(quoted) {
			t.Errorf("%q: got %s and %s", s, b[1:], quoted)
		}
	})
}

// A string is quoted without a copy of it.
func TestQuoteStringAllocates(t *testing.T) {
	s, dst := strings.Repeat("text é \" ", 1000), make([]byte, 0, 1<<15)
	if n := testing.AllocsPerRun(100, func() { _ = jsonscan.QuoteString(dst, s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
