package command

import (
	"strings"
	"testing"

	"arbe.0sk.ar/runner/thread"
)

// TestManyPieces writes short parts to both streams in turn: the pieces stay few, and each stream whole and in order.
func TestManyPieces(t *testing.T) {
	t.Parallel()
	const lines = 5_000
	o := newOutput(&thread.Redactor{}, DefaultMaxOutput)
	for range lines {
		o.write(thread.StreamStdout, []byte("a\n"))
		o.write(thread.StreamStderr, []byte("b\n"))
	}
	o.close()
	got := map[string]string{}
	pieces := o.take()
	for _, p := range pieces {
		got[p.stream] += p.text
	}
	if len(pieces) > mostPieces+2 {
		t.Errorf("%d pieces", len(pieces))
	}
	for stream, line := range map[string]string{thread.StreamStdout: "a\n", thread.StreamStderr: "b\n"} {
		if got[stream] != strings.Repeat(line, lines) {
			t.Errorf("%s is not as it was written: %d bytes", stream, len(got[stream]))
		}
	}
}
