package hydrate_test

import (
	"bytes"
	"os"
	"testing"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// BenchmarkRebuild parses and adds the entries of a recorded tool turn.
func BenchmarkRebuild(b *testing.B) {
	content, err := os.ReadFile("../testdata/sessions/pi/tool-turn_1.5.2-json/session.jsonl")
	if err != nil {
		b.Fatal(err)
	}
	e := mirror.Encoder{Namer: mirror.Namer{Dialect: session.Pi}, Redact: &redact.Redactor{}}
	var entries []thread.Entry
	for i, l := range bytes.Split(bytes.TrimSpace(content), []byte("\n")) {
		entry, _ := e.Encode(session.Line{Start: session.Position{Index: i}, Data: l})
		entries = append(entries, entry)
	}
	b.SetBytes(int64(len(content)))
	r := &hydrate.Rebuilder{Dialect: session.Pi, TempDir: b.TempDir()}
	defer r.Close()
	for b.Loop() {
		for _, e := range entries {
			if err := r.Add(hydrate.Parse(e, session.Pi)); err != nil {
				b.Fatal(err)
			}
		}
	}
}
