package command

import (
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// TestManyPieces writes short parts to both streams in turn: the pieces stay few, and each stream whole and in order.
func TestManyPieces(t *testing.T) {
	t.Parallel()
	const lines = 5_000
	o := newOutput(&redact.Redactor{})
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

// A command of an hour that writes to both streams all the time makes a bounded number of entries.
func TestFewEntries(t *testing.T) {
	t.Parallel()
	s := &supervisor{out: newOutput(&redact.Redactor{})}
	for at := time.Duration(0); at < time.Hour; at += s.wait() {
		for range 10 {
			s.out.write(thread.StreamStdout, []byte("a"))
			s.out.write(thread.StreamStderr, []byte("b"))
		}
		s.outs += len(s.out.take())
		if s.outs >= manyOutputs {
			s.out.few()
		}
	}
	if s.outs > 2000 {
		t.Errorf("%d entries", s.outs)
	}
}
