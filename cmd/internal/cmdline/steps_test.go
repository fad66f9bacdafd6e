package cmdline

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// On a terminal a step is one line that counts seconds, and stays with the time that it took. A note stands above it.
func TestStepsOnTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen strings.Builder
		s := &Steps{w: &screen, columns: 30}
		s.Begin("making a box")
		time.Sleep(2500 * time.Millisecond) // virtual
		s.Note("a line")
		s.Begin("uploading something with a long name")
		time.Sleep(100 * time.Millisecond)
		s.End()
		want := "\r\x1b[K· making a box" +
			"\r\x1b[K· making a box (1s)" +
			"\r\x1b[K· making a box (2s)" +
			"\r\x1b[K  a line\n" +
			"\r\x1b[K· making a box (2s)" +
			"\r\x1b[K· making a box (2.5s)\n" +
			"\r\x1b[K· uploading something with a…" +
			"\r\x1b[K· uploading somethin… (100ms)\n"
		if got := screen.String(); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		s.End() // again is nothing
	})
}

// Elsewhere each step is a line when it begins.
func TestStepsInPipe(t *testing.T) {
	var out strings.Builder
	s := NewSteps(&out)
	s.Begin("making a box")
	s.Note("a line")
	s.Begin("uploading")
	s.End()
	if got, want := out.String(), "· making a box\n  a line\n· uploading\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
