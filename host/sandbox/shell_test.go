package sandbox_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"arbe.0sk.ar/runner/host/sandbox"
)

// An error has the end of what a script printed, also of a single long line, and no half of a character.
func TestExitError(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "exit status 3, without output",
		"short\nlines":                    "exit status 3: short\nlines",
		strings.Repeat("x", 5000) + "end": "exit status 3: …" + strings.Repeat("x", 1997) + "end",
		strings.Repeat("ä", 1500) + "end": "exit status 3: …" + strings.Repeat("ä", 998) + "end",
		strings.Repeat("line\n", 1000) + "at end": "exit status 3: …ine\n" + strings.Repeat("line\n", 398) + "at end",
	} {
		got := (&sandbox.ExitError{Code: 3, Output: text}).Error()
		if got != want || !utf8.ValidString(got) {
			t.Errorf("%.20q…: got %d bytes, %.40q…%.40q", text, len(got), got, got[max(0, len(got)-20):])
		}
	}
}
